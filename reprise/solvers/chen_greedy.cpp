// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/chen_greedy.h"

#include <fmt/core.h>

#include "reprise/core/simulator.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/chen_sqrt.h"
#include "reprise/solvers/segments.h"

namespace reprise {
namespace {

Findings sweep_thresholds(const Problem& problem, const Limits& limits,
                          std::span<const OpId> forward, std::span<const OpId> candidate_ops) {
  constexpr std::int64_t kThresholds = 300;
  const Graph& graph = problem.graph;
  const Stopwatch watch(limits);
  const Plan by_roots = plan_from_kept(graph, keep_at(graph, every_root_th(forward)));
  const Bytes scale = Candidates(problem).offer(by_roots).value_or(base_peak(graph));
  Candidates candidates(problem);
  std::vector<OpId> last;
  for (std::int64_t i = 0; i < kThresholds; ++i) {
    std::vector<OpId> taken = whenever_full(graph, forward, candidate_ops, hundredths(scale, i));
    if (i > 0 && taken == last) continue;
    if (i > 0 && watch.must_stop()) {
      candidates.stopped();
      break;
    }
    watch.report(fmt::format("threshold {} of {}", i, kThresholds));
    offer_with_room(candidates, problem, keep_at(graph, taken), watch);
    last = std::move(taken);
  }
  return std::move(candidates).best();
}

}  // namespace

std::vector<OpId> whenever_full(const Graph& graph, std::span<const OpId> forward,
                                std::span<const OpId> candidates, Bytes threshold) {
  std::vector<OpId> taken;
  Bytes sum;
  auto next = candidates.begin();
  for (const OpId op : forward) {
    for (const ValueId output : graph.outputs(op)) sum += graph.bytes(output);
    if (next == candidates.end() || op != *next) continue;
    ++next;
    if (sum <= threshold) continue;
    taken.push_back(op);
    sum = Bytes{0};
  }
  return taken;
}

Findings chen_greedy(const Problem& problem, const Limits& limits) {
  const OpSet forward = forward_of_loss(problem.graph);
  return sweep_thresholds(problem, limits, in_program_order(forward),
                          articulation_points(problem.graph, forward));
}

Findings chen_greedy_any(const Problem& problem, const Limits& limits) {
  const std::vector<OpId> forward = in_program_order(forward_of_loss(problem.graph));
  return sweep_thresholds(problem, limits, forward, forward);
}

}  // namespace reprise
