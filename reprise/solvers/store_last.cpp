// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/store_last.h"

#include <fmt/core.h>

#include "reprise/core/plan_from_kept.h"
#include "reprise/solvers/candidates.h"

namespace reprise {

Findings store_last(const Problem& problem, const Limits& limits) {
  constexpr std::int64_t kBytesPerCompute = 64;  // in the order, and in the plan with its frees
  const Graph& graph = problem.graph;
  const Stopwatch watch(limits);
  const auto keep_going = [&](OpId op, std::size_t computes) {
    if (op.index % 64 == 0) {
      watch.report(fmt::format("op {} of {}", op.index, graph.ops().size()));
    }
    return !watch.must_stop() &&
           static_cast<std::int64_t>(computes) < limits.memory.count() / kBytesPerCompute;
  };
  const KeptValues nothing{
      ValueSet(graph.values().size(), false), {}, KeptValues::Stay::for_one_op};
  Candidates candidates(problem);
  if (auto plan = plan_from_kept(graph, nothing, keep_going)) {
    candidates.offer(*std::move(plan));
  } else {
    candidates.gave_up(watch);
  }
  return std::move(candidates).best();
}

}  // namespace reprise
