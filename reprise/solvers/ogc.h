// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "reprise/solvers/division_tree.h"
#include "reprise/solvers/solver.h"

namespace reprise {

// Which vertices are kept. The others form segments: the connected parts of what is left.
struct OgcAnswer {
  std::vector<bool> kept;  // source and target always
  Bytes kept_bytes;        // source and target aside
  Bytes largest_segment;   // bytes of the vertices in it
  Bytes total() const { return kept_bytes + largest_segment; }
};

// Optimal gradient checkpoint search (Feng and Huang, CVPR'21): keep few bytes, and no large
// segment between them.
class OgcSearch {
 public:
  // With segments that touch two kept vertices only, as published; or with segments that touch any
  // number of them, where pieces of the division tree interlock: those are then cut into stretches
  // of the order of vertices as well, and what is read after its stretch is kept.
  enum class Segments : std::uint8_t { two_terminal, any };

  // The division of the graph goes on while `keep_going` says so.
  OgcSearch(TwoTerminalGraph graph, Segments segments, const std::function<bool()>& keep_going);

  // The fewest bytes kept with no segment above `most`: of two-terminal segments the true minimum.
  // O(vertices + edges); interlocked pieces cut anywhere take vertices times those of a segment.
  OgcAnswer with_most(Bytes most) const;

  // The least total, over all `most`. A range of `most` is left out once no less can be kept in it
  // than brings the total to the best known. Exact if `keep_going`, called with the number of calls
  // of with_most so far, never says no.
  OgcAnswer least_total(const std::function<bool(std::size_t)>& keep_going) const;

  Bytes inside() const;  // of all vertices but source and target

 private:
  TwoTerminalGraph graph_;
  Segments segments_;
  DivisionTree tree_;
  std::vector<std::uint32_t> last_reader_;  // a vertex: the last that an edge leads to
};

// Keeps the values of an answer on the forward graph and computes its segments again, each when the
// backward pass comes to it; where room is left, the last segments are kept whole. Ops that nothing
// leads to but a few ops (a cast of a weight) come back with the op that reads them. For the
// smallest peak the answer of least total and a sweep of `most`; else the cheapest plan of the
// sweep that fits. Needs phases.
Findings ogc(const Problem& problem, const Limits& limits);

}  // namespace reprise
