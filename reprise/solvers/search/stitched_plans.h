// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "reprise/solvers/plan_order.h"

namespace reprise {

// Plans of a training graph, that fit `budget` or come near, by its blocks: each kind of block is
// solved once, at several budgets; a dynamic program over the chain says which of its plans each
// block takes and which stretches run forward again from a value that is kept (Beaumont et al.,
// "Optimal checkpointing for heterogeneous chains", 2019; Zhao et al., "Rockmate", ICML 2023).
// The best one first. Empty where the plain run fits, where nothing parts the graph, and where
// `must_stop`.
std::vector<PlanOrder> stitched_plans(const Graph& graph, Bytes budget,
                                      const std::function<bool()>& must_stop);

}  // namespace reprise
