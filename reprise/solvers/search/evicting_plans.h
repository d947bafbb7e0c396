// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/plan_order.h"

namespace reprise {

// A plan with first runs in the order `first_runs`, that stays inside `room` all the way: where an
// op has none, what goes is what costs little to make again, for its bytes and for the time until
// it is read; what an op misses is made again just before it, in the same room (Kirisame et al.,
// "Dynamic tensor rematerialization", ICLR 2021, here with reads that are known beforehand). None
// where that fails, takes many runs an op, or `must_stop`; there may be one in a smaller room then.
// Ties go to the value that came first. O(runs · values there).
std::optional<PlanOrder> evicting_plan(const Graph& graph, std::span<const OpId> first_runs,
                                       Bytes room, const std::function<bool()>& must_stop);

// Such plans inside `budget`, or in rooms that halving finds above it, the best first.
std::vector<PlanOrder> evicting_plans(const Graph& graph, std::span<const OpId> first_runs,
                                      Bytes budget, const std::function<bool()>& must_stop);

}  // namespace reprise
