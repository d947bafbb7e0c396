// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// Checkmate's two-phase rounding (Jain et al., MLSys'20, section 5): solves the relaxation of the
// integer program at the budget and at nine tenths of it, keeps what it keeps by a threshold or
// more, for thresholds of 0.1, 0.2 … 0.9, computes again what is then missing, and takes the best
// that fits. The relaxation at the budget proves a bound for plans in stages (scope 'fixed-order'),
// rounding errors subtracted. Where the smallest peak is asked for, relaxes that first. Any graph.
Findings checkmate_lp(const Problem& problem, const Limits& limits);

// The same relaxations, but each value is kept in each stage by the toss of a coin that is as
// biased as the relaxation says. `Limits::iterations` rounds for each, else 100.
Findings checkmate_lp_random(const Problem& problem, const Limits& limits);

}  // namespace reprise
