// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reprise/core/topology.h"
#include "reprise/core/units.h"

namespace reprise {

// A graph between two vertices: in topological order, the first the only source, the last the only
// target, all others on some path from one to the other. At least two vertices.
struct TwoTerminalGraph {
  std::vector<Bytes> bytes;          // of each vertex
  std::vector<Digraph::Edge> edges;  // from < to, each once
};

// The division tree of OGC (Feng and Huang, CVPR'21): pieces between two vertices whose inside
// touches nothing else, and the pieces inside them.
struct DivisionTree {
  enum class Kind : std::uint8_t {
    in_a_row,      // some vertices, in order, are on every path; a piece before, between, after
    side_by_side,  // the inside falls into several parts, each a piece between the same two
    interlocked,   // neither: the largest pieces inside, and the vertices between them
  };
  struct Piece {
    Kind kind{};
    std::uint32_t source = 0;
    std::uint32_t target = 0;
    Bytes inside;                         // of all vertices but source and target
    std::vector<std::uint32_t> vertices;  // inside, but in no smaller piece; ascending
    std::vector<std::uint32_t> pieces;    // numbers; in_a_row: one more than vertices, kNone: empty
    std::vector<std::uint32_t> all;       // interlocked: all vertices inside, ascending
  };
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::vector<Piece> pieces;  // the first is the whole; a piece comes before those inside it
};

// Iterative and deterministic. A level of the tree takes O(edges); interlocked pieces are found by
// Tarjan's search with each vertex in turn taken out, O(vertices · edges), but where that is more
// than 10^9 none are looked for. Once `keep_going`, asked before each piece, says no, pieces stay
// whole: interlocked, with no smaller ones inside.
DivisionTree divide(const TwoTerminalGraph& graph, const std::function<bool()>& keep_going);

}  // namespace reprise
