// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "tests/oracle/random.h"

namespace reprise::oracle {

// A right plan: ops run in any possible order, some again, values are freed early and late.
Plan random_right_plan(const Graph& graph, Random& random);

// The plan with a few steps removed, doubled, swapped or replaced: most likely wrong.
Plan damaged(const Graph& graph, Plan plan, Random& random);

}  // namespace reprise::oracle
