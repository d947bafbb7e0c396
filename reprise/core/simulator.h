// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise {

// What a plan costs and holds, step by step.
struct Replay {
  Cost cost;   // sum over compute steps
  Bytes peak;  // largest sum of live values and workspace, residents aside
  std::optional<std::size_t> peak_step;  // the first compute that reaches it; none in an empty plan
  std::vector<Bytes> in_use;             // a step: while it runs (compute) or after it (free)
};

// Replays `plan` on `graph` in O(steps + edges run). Throws PlanError at the first broken rule.
Replay simulate(const Graph& graph, const Plan& plan);

// The peak of the base run.
Bytes base_peak(const Graph& graph);

// The values that count towards the peak while compute step `step` runs, in the graph's order. An
// input that is overwritten is left out: its buffer is the output's.
std::vector<ValueId> alive_during(const Graph& graph, const Plan& plan, std::size_t step);

}  // namespace reprise
