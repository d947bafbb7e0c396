// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// The best of the start plan, if there is one, and of what every solver that supports the problem
// and is `in_auto` finds, one after the other, the last in the list first; each has an equal share
// of the time that is left. Any graph.
Findings best_of_published(const Problem& problem, const Limits& limits);

}  // namespace reprise
