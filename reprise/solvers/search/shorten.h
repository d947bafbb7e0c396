// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "reprise/solvers/plan_order.h"

namespace reprise {

// The plan without the runs that can be left out one by one, from the last on, such that the peak
// stays inside `room`, or inside its own where that is more. Makes plans that run everything again
// and again short enough to search from. O(runs · edges of an op · log runs), or until `must_stop`.
PlanOrder shortened(const Graph& graph, const PlanOrder& plan, Bytes room,
                    const std::function<bool()>& must_stop);

}  // namespace reprise
