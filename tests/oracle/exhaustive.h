// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise::oracle {

struct Optimum {
  Cost cost;
  Plan plan;
};

// The cheapest of all plans whose peak is at most `budget`: any order, any number of runs, every
// feature of the model. Dijkstra's search over what is there and what has run. At most 24 values
// that are not resident and ops together.
std::optional<Optimum> cheapest_plan(const Graph& graph, Bytes budget);

// The smallest peak of all plans.
Bytes smallest_peak(const Graph& graph);

}  // namespace reprise::oracle
