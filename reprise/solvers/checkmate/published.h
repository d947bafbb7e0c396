// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/checkmate/model.h"

namespace reprise {

// The full schedule's program exactly as published (section 4 of the paper and its code), nothing
// left out: a flag a use that says whether it frees, held by two rows with a large coefficient; a
// value that nothing uses again in its stage stays to its end. For comparison: 3T² + TE columns.
// Knows workspace, several outputs and ops that may not run again, and charges overwritten inputs
// in full: no bound where a graph has those.
CheckmateModel published_checkmate_model(const Graph& graph, Bytes budget);

}  // namespace reprise
