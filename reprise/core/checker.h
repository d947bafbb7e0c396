// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise {

// What `check` found.
struct Verdict {
  std::optional<Violation> broken;  // the first rule broken; none: the plan is right
  Bytes peak;                       // meaningful where the plan is right
  Cost cost;
};

// Judges a plan by the rules of the model, as plainly as they are written down, and shares no code
// with `simulate`: each is the other's test. O((steps + edges run) log steps).
Verdict check(const Graph& graph, const Plan& plan);

}  // namespace reprise
