// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// The base run: every op once, everything kept until its last use. The fastest plan there is, and
// the measure of all others. Any graph. O(ops + edges).
Findings store_all(const Problem& problem, const Limits& limits);

}  // namespace reprise
