// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "reprise/solvers/solver.h"

namespace reprise {

// Of n candidates in program order every ⌊√n⌋-th is taken (Chen et al., "Training Deep Nets
// with Sublinear Memory Cost", 2016, section 4.1, as Checkmate runs it: Jain et al., MLSys'20,
// section 6).
std::vector<OpId> every_root_th(std::span<const OpId> candidates);

// Keeps the values of the ops taken and computes the segments between them again, each when the
// backward pass comes to it; where room is left, the last segments are kept whole. Needs phases.
// O(ops + edges) for a plan, log segments of them.
Findings chen_sqrt(const Problem& problem, const Limits& limits);      // candidates: cut points
Findings chen_sqrt_any(const Problem& problem, const Limits& limits);  // all forward ops

}  // namespace reprise
