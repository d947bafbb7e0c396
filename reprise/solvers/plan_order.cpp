// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/plan_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"

namespace reprise {

PlanOrder plan_order(const Graph& graph, std::vector<OpId> order) {
  const Replay replay = simulate(graph, with_earliest_frees(graph, order));
  return {std::move(order), replay.cost, replay.peak};
}

PlanOrder plan_order(const Graph& graph, const Plan& plan) {
  std::vector<OpId> order;
  for (const Step step : plan.steps) {
    if (step.kind() == StepKind::compute) order.push_back(step.op());
  }
  return plan_order(graph, std::move(order));
}

std::size_t most_runs(const Graph& graph) {
  return std::max(3 * graph.ops().size(), std::size_t{10'000});
}

bool better(const PlanOrder& a, const PlanOrder& b, const Budget& budget) {
  const bool both_fit = budget.bytes && budget.allows(a.peak) && budget.allows(b.peak);
  return both_fit ? std::tie(a.cost, a.peak) < std::tie(b.cost, b.peak)
                  : std::tie(a.peak, a.cost) < std::tie(b.peak, b.cost);
}

void sort_best_first(std::vector<PlanOrder>& plans, const Budget& budget) {
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const PlanOrder& a, const PlanOrder& b) { return better(a, b, budget); });
}

}  // namespace reprise
