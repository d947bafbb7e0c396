// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/checkmate/model.h"
#include "reprise/solvers/solver.h"

namespace reprise {

// The cheapest plan in stages that fits, by Checkmate's integer program (Jain et al., MLSys'20,
// section 4) on HiGHS: first runs in program order; between two first runs ops run again in program
// order, each at most once. Starts from the best plan of `auto` and checkmate-lp, and ends at the
// limits with the best so far; its proven bound holds for plans in stages (scope 'fixed-order').
// Where the smallest peak is asked for, that is minimised first. Any graph. `Limits::iterations`
// bounds the nodes of each search tree; a program past `Limits::memory` is not built.
Findings checkmate_ilp(const Problem& problem, const Limits& limits);

// The same with the paper's other imposed schedules: first runs come in any stage. More plans, a
// far weaker relaxation, and a bound that holds for any plan of as many such stages as there are
// ops.
Findings checkmate_ilp_cover_all(const Problem& problem, const Limits& limits);
Findings checkmate_ilp_cover_last(const Problem& problem, const Limits& limits);

}  // namespace reprise
