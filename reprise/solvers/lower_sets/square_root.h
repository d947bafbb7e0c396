// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/solvers/lower_sets/program.h"

namespace reprise {

struct SquareRootSequence {
  LowerSetSequence sequence;
  std::size_t candidates = 0;  // sets to choose from, none and all included
  std::int64_t root = 1;       // of that number, rounded down
};

// Chen et al.'s √n heuristic (arXiv 1604.06174) as the authors of the lower-set method run it: of
// the sets with a boundary of one node, about as many as the square root of their number, at about
// equal distances in bytes.
//
// Sets that do not hold the one taken before are passed over: on a graph with several roots the
// candidates need not be nested.
SquareRootSequence square_root_sequence(const LowerSetGraph& graph, const LowerSets& family);

}  // namespace reprise
