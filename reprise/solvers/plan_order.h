// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "reprise/core/budget.h"
#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise {

// A plan as the search sees it: the computes in order; frees come as early as can be.
struct PlanOrder {
  std::vector<OpId> order;
  Cost cost;
  Bytes peak;
};

PlanOrder plan_order(const Graph& graph, std::vector<OpId> order);  // of a right plan
PlanOrder plan_order(const Graph& graph, const Plan& plan);

// Plans of more runs are too long to walk from: three an op, or 10,000.
std::size_t most_runs(const Graph& graph);

// Is `a` better than `b`? Inside the budget the cheaper one, at equal cost the smaller peak;
// outside the smaller peak. Without a budget the smaller peak, at equal peaks the cheaper.
bool better(const PlanOrder& a, const PlanOrder& b, const Budget& budget);
void sort_best_first(std::vector<PlanOrder>& plans, const Budget& budget);  // ties as they were

}  // namespace reprise
