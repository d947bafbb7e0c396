// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise {

// The plan that runs `order` and frees every value at the earliest moment: right after the last op
// that reads it before it is made again, or that makes it for nobody. The last copy of a kept value
// stays. Frees after one op come in the order of its inputs, then of its outputs. O(edges run).
//
// Does not judge the order: where an op lacks an input, so does the plan.
Plan with_earliest_frees(const Graph& graph, std::span<const OpId> order);

std::vector<OpId> program_order(const Graph& graph);  // every op once

// The base run: every op once, in program order.
Plan base_run(const Graph& graph);

}  // namespace reprise
