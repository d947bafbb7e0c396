// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/segments.h"

#include <algorithm>
#include <initializer_list>

namespace reprise {
namespace {

// The decision with all values of the segments from `first` on kept as well.
KeptValues keep_whole_from(const Graph& graph, KeptValues decision, std::uint32_t first) {
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) != Phase::forward || decision.segments[op] < first) continue;
    for (const ValueId output : graph.outputs(op)) decision.kept[output] = true;
  }
  return decision;
}

// The forward ops that an op in one of `phases` depends on.
OpSet forward_before(const Graph& graph, std::initializer_list<Phase> phases) {
  OpSet needed(graph.ops().size(), false);
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const OpId op{static_cast<std::uint32_t>(i)};
    const bool is_end = std::find(phases.begin(), phases.end(), graph.phase(op)) != phases.end();
    if (!needed[op] && !is_end) continue;
    for (const ValueId input : graph.inputs(op)) {
      if (const auto producer = graph.producer(input)) needed[*producer] = true;
    }
  }
  for (const OpId op : graph.ops()) needed[op] = needed[op] && graph.phase(op) == Phase::forward;
  return needed;
}

}  // namespace

OpSet forward_of_loss(const Graph& graph) {
  bool has_loss = false;
  for (const OpId op : graph.ops()) has_loss = has_loss || graph.phase(op) == Phase::loss;
  return forward_before(graph, {has_loss ? Phase::loss : Phase::backward});
}

OpSet forward_of_the_rest(const Graph& graph) {
  return forward_before(graph, {Phase::loss, Phase::backward});
}

std::vector<OpId> in_program_order(const OpSet& ops) {
  std::vector<OpId> list;
  for (const OpId op : ops.ids()) {
    if (ops[op]) list.push_back(op);
  }
  return list;
}

KeptValues keep_at(const Graph& graph, std::span<const OpId> ends) {
  KeptValues decision{ValueSet(graph.values().size(), false),
                      IdVector<OpId, std::uint32_t>(graph.ops().size())};
  std::uint32_t segment = 0;
  for (const OpId op : graph.ops()) {
    decision.segments[op] = segment;
    if (segment == ends.size() || op != ends[segment]) continue;
    ++segment;
    for (const ValueId output : graph.outputs(op)) decision.kept[output] = true;
  }
  return decision;
}

bool offer_with_room(Candidates& candidates, const Problem& problem, const KeptValues& decision,
                     const Stopwatch& watch) {
  const Graph& graph = problem.graph;
  const auto offer = [&](const KeptValues& kept) {
    return candidates.offer(plan_from_kept(graph, kept));
  };
  const std::optional<Bytes> least = offer(decision);
  if (!least || !problem.budget.allows(*least)) return false;
  const Bytes room = problem.budget.bytes.value_or(*least);

  std::uint32_t segments = 0;
  for (const OpId op : graph.ops()) segments = std::max(segments, decision.segments[op] + 1);
  // Keeping whole from `fits` on fits, and from before `misses` on does not or is not known to.
  std::uint32_t fits = segments;
  std::uint32_t misses = 0;
  while (misses < fits) {
    if (watch.must_stop()) {
      candidates.stopped();
      break;
    }
    const std::uint32_t first = misses + (fits - misses) / 2;
    const std::optional<Bytes> peak = offer(keep_whole_from(graph, decision, first));
    if (peak && *peak <= room) {
      fits = first;
    } else {
      misses = first + 1;
    }
  }
  return true;
}

}  // namespace reprise
