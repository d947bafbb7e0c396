// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// Dynamic programming over lower sets of the forward ops (Kusumoto et al., NeurIPS'19): sequences
// of segments, between which the values that a later segment reads are kept. The paper's program
// bounds a formula; here its budget is searched over, and of the plans that its sequences make the
// cheapest that fits by the simulator is the answer. `Objective::memory` looks only at the
// sequences that keep the fewest bytes (the paper's memory-centric ones), `time` at all.
//
// `lower_set` takes as lower sets the ancestors of each op: O(ops²) pairs of sets, a few dozen
// times. `lower_set_exact` goes on with all lower sets there are; where they are too many for the
// limits, it is stopped with what the others gave. Needs phases.
Findings lower_set(const Problem& problem, const Limits& limits);
Findings lower_set_exact(const Problem& problem, const Limits& limits);

}  // namespace reprise
