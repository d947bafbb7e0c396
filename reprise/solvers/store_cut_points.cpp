// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/store_cut_points.h"

#include "reprise/core/plan_from_kept.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/candidates.h"

namespace reprise {
namespace {

// The forward ops that the loss depends on; where there is no loss op, those that a backward op
// does. Counters and the like, which nobody waits for, are not among them.
OpSet forward_of_loss(const Graph& graph) {
  bool has_loss = false;
  for (const OpId op : graph.ops()) has_loss = has_loss || graph.phase(op) == Phase::loss;
  OpSet needed(graph.ops().size(), false);
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const OpId op{static_cast<std::uint32_t>(i)};
    const bool is_end = graph.phase(op) == (has_loss ? Phase::loss : Phase::backward);
    if (!needed[op] && !is_end) continue;
    for (const ValueId input : graph.inputs(op)) {
      if (const auto producer = graph.producer(input)) needed[*producer] = true;
    }
  }
  for (const OpId op : graph.ops()) needed[op] = needed[op] && graph.phase(op) == Phase::forward;
  return needed;
}

}  // namespace

Findings store_cut_points(const Problem& problem, const Limits&) {
  const Graph& graph = problem.graph;
  OpSet is_cut(graph.ops().size(), false);
  for (const OpId op : articulation_points(graph, forward_of_loss(graph))) is_cut[op] = true;

  KeptValues decision{ValueSet(graph.values().size(), false),
                      IdVector<OpId, std::uint32_t>(graph.ops().size())};
  std::uint32_t segment = 0;
  for (const OpId op : graph.ops()) {
    decision.segments[op] = segment;
    if (!is_cut[op]) continue;
    ++segment;
    for (const ValueId output : graph.outputs(op)) decision.kept[output] = true;
  }
  Candidates candidates(problem);
  candidates.offer(plan_from_kept(graph, decision));
  return std::move(candidates).best();
}

}  // namespace reprise
