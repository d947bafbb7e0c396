// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reprise/solvers/lower_sets/family.h"

namespace reprise {

// A growing sequence of lower sets, from none to all: its steps are the segments. Kept is what a
// later segment reads; the rest of a segment is computed again in the backward pass.
struct LowerSetSequence {
  std::vector<std::uint32_t> segments;  // of each node, from 0 on
  std::uint32_t count = 0;
  Cost kept_cost;    // of the nodes that are kept
  Bytes kept_bytes;  // likewise
  Bytes peak;        // the largest need of a segment, by the method's own formula
};

// The sequence of these sets: the empty one first, each in the next, all nodes last.
LowerSetSequence sequence_of(const LowerSetGraph& graph, const LowerSets& family,
                             std::span<const std::size_t> sets);

// The dynamic program over a family of lower sets (Kusumoto et al., NeurIPS'19, section 4). Going
// from L to a superset L' makes a segment, which needs
//   kept so far + 2 · (bytes(L') − bytes(L)) + bytes_above(L')
// bytes, and keeps the boundary of L' outside L. For each set, the states that no other beats in
// both kept cost (more) and kept bytes (less) are held, each with the state it came from.
//
// Equal states: the first one found stays, in the order of the family, then of rising kept cost.
class LowerSetProgram {
 public:
  // Which states to hold, and how long to go on.
  struct Options {
    // At most this many a set: past that, of states of about the same kept cost the one with the
    // least bytes. With 1, the least bytes, ties to the larger kept cost.
    std::size_t states_per_set = std::size_t{1} << 20;
    std::int64_t at_least = 0;  // final kept cost: states that can't reach it are dropped
    LowerSets::Room room;
  };

  // The states at the set of all nodes, by rising kept cost and bytes; what they came from.
  class Front {
   public:
    std::size_t size() const { return last_.size(); }
    LowerSetSequence sequence(std::size_t i) const;

   private:
    friend class LowerSetProgram;
    struct State {
      std::int64_t bytes;
      std::int64_t cost;
      std::uint32_t from;  // a state, kNone at the start
      std::uint32_t set;
    };
    static constexpr std::uint32_t kNone = UINT32_MAX;

    const LowerSetGraph* graph_ = nullptr;
    const LowerSets* family_ = nullptr;
    std::vector<State> states_;
    std::vector<std::uint32_t> last_;
    Bytes next_budget_;  // below it, a larger budget changes nothing
  };

  // Borrows both.
  LowerSetProgram(const LowerSetGraph& graph, const LowerSets& family)
      : graph_(graph), family_(family) {}

  // All segments within `budget`; empty where that is impossible; none where there is no room.
  // O(pairs of sets + (pairs, one in the other, within budget) · (boundary + states)).
  std::optional<Front> run(Bytes budget, const Options& options) const;

  // The smallest budget that is possible; none where there is no room. A dozen or more runs that
  // hold one state a set; fewer where a `possible` budget near it is known.
  std::optional<Bytes> smallest_budget(Bytes possible, const LowerSets::Room& room) const;

  // No sequence needs more: kept nodes count once, a segment twice, what is above it twice.
  Bytes largest_budget() const { return Bytes{5 * family_.bytes(family_.size() - 1)}; }

 private:
  const LowerSetGraph& graph_;
  const LowerSets& family_;
};

}  // namespace reprise
