// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// The other end: the forward pass keeps nothing for the backward pass, and each backward op has all
// it reads computed again from the start, and dropped after (Checkmate's CHECKPOINT_LAST_NODE, Jain
// et al., MLSys'20, section 6). Gradients are kept until their last use. As many computes as ops
// times ops: ends at the limits with nothing. Needs phases.
Findings store_last(const Problem& problem, const Limits& limits);

}  // namespace reprise
