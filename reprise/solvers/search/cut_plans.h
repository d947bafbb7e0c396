// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/plan_order.h"

namespace reprise {

// Plans with first runs in the order `first_runs`, that fit `budget` or come near, the best first.
// Where the plain run takes most, a cut says what to keep inside the budget, and the rest runs
// again just in time. Where that is too large later, every so many of the ops that part the graph
// stay, so that nothing has to run again across them, and less is kept at that moment; or there are
// more such moments: wherever more than the budget would be there, or at each new peak, with the
// excess taken from the room at it. Gives up after some millions of cuts times ops, or where
// `must_stop`, which is asked before each cut.
std::vector<PlanOrder> cut_plans(const Graph& graph, std::span<const OpId> first_runs, Bytes budget,
                                 const std::function<bool()>& must_stop);

// Keeps as little as can be: whatever an op reads is computed again just before it, from the
// residents on, but for values of ops that may not run again. None where that takes more than
// `most_runs`, and where `must_stop`.
std::optional<PlanOrder> keep_nothing(const Graph& graph, std::span<const OpId> first_runs,
                                      std::size_t most_runs,
                                      const std::function<bool()>& must_stop);

}  // namespace reprise
