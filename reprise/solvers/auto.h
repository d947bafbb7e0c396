// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// The default: the best of the start plan, if there is one, and of what every solver that supports
// the problem and is `in_auto` finds within the limits. Any graph.
Findings best_of_all(const Problem& problem, const Limits& limits);

}  // namespace reprise
