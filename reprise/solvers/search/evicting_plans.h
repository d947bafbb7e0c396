// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/plan_order.h"

namespace reprise {

// Plans with first runs in the order `first_runs`, that fit `budget` or come near, the best first.
// Each stays inside some room all the way: where an op has none, what goes is what costs little to
// make again, for its bytes and for the time until it is read; what an op misses is made again just
// before it, in the same room (Kirisame et al., "Dynamic tensor rematerialization", ICLR 2021, here
// with reads that are known beforehand). The room is the budget, or what halving finds above it.
// Plans of many runs an op are given up. Ties go to the value that came first. O(runs · values
// there) for each room, or until `must_stop`.
std::vector<PlanOrder> evicting_plans(const Graph& graph, std::span<const OpId> first_runs,
                                      Bytes budget, const std::function<bool()>& must_stop);

}  // namespace reprise
