// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// The default: start plans from cuts and from the published planners, a search among all plans from
// there on, and a bound that holds for all plans. Any graph.
//
// Ends when cost meets the bound (or is near enough: Limits::gap), at a limit, or when the search
// has found nothing new for long.
Findings search_and_prove(const Problem& problem, const Limits& limits);

}  // namespace reprise
