// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/solver.h"

namespace reprise {

// Keeps the values at the articulation points of the forward graph and computes the segments
// between them again, each when the backward pass comes to it (Checkmate's CHECKPOINT_ALL_AP, Jain
// et al., MLSys'20, section 6). Needs phases. O(ops + edges).
Findings store_cut_points(const Problem& problem, const Limits& limits);

}  // namespace reprise
