// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/bounds/max_flow.h"

namespace reprise {

// The moment at which `op` runs for the first time, and what is known of the others then.
struct Moment {
  enum class When : std::uint8_t { before, after, either };

  OpId op;
  IdVector<OpId, When> first_run;  // of each other op, as seen from this moment
  ValueSet out_of_reach;           // values that can't be there then; empty: none is
};

// The moment in any plan whatever: ancestors have run before, descendants run after.
Moment moment_of(const Graph& graph, OpId op);

// A choice of what is there at a moment, and what runs again after it.
struct Cut {
  OpSet again;
  ValueSet kept;
  Cost cost;    // of running these again
  Bytes bytes;  // of what is kept, beside the op's own
};

// The least that has to be paid after a moment, where only so much is kept at it.
//
// An op that runs after the moment needs its inputs, and whoever asks for the kept values needs
// those: each was kept, or its producer runs after the moment, too. With a price on a byte the
// cheapest choice is a smallest cut: a value's arc, of its bytes, leads from "needed" to its
// producer's "runs after"; that one's, of its cost, to the sink (no cost where it may be the first
// run, no limit where it may not run again); and arcs without limit from there to its inputs'
// "needed". The op's own inputs and outputs are there anyway, but for an input that it overwrites.
//
// Integers all the way: prices are whole numbers of 2^-scale cost a byte. For graphs with less than
// 2^58 bytes in all.
class MomentCuts {
 public:
  MomentCuts(const Graph& graph, const Moment& moment);

  Bytes all() const { return all_; }  // kept where nothing runs again
  Bytes least();                      // kept where costs do not matter

  // From now on each of these ops runs again after the moment (true), or does not. Replaces what
  // was fixed before.
  void fix(std::span<const std::pair<OpId, bool>> ops);

  struct Bound {
    Cost cost;                  // no choice that keeps at most the room costs less
    Cut inside;                 // the cheapest choice met that does
    std::optional<OpId> split;  // an op that two cuts about the room differ in; none: cost is exact
  };
  // The best bound that one price gives. None where no choice keeps so little. Takes a handful of
  // cuts: each time at the price at which a cut that keeps too much and one that does not cost the
  // same.
  std::optional<Bound> best(Bytes room);

 private:
  enum class Runs : std::uint8_t { at_a_cost, for_free, never_again };
  struct OpNode {
    OpId op;
    Runs runs;
    MaxFlow::Arc forced;
    MaxFlow::Arc cost;
    std::optional<bool> fixed;
  };
  struct ValueNode {
    ValueId value;
    std::uint32_t producer;  // its position among the ops
    bool in_reach;
    MaxFlow::Arc kept;
  };

  MaxFlow::Node node(const ValueNode& value) const;
  MaxFlow::Node node(const OpNode& op) const;
  std::optional<Cut> solve(std::int64_t price, bool costs_matter);
  Cut between(const Cut& above, const Cut& below, Bytes room) const;

  static constexpr std::uint32_t kNone = UINT32_MAX;

  const Graph& graph_;
  std::vector<ValueNode> values_;           // that may have to be kept …
  std::size_t needed_ = 0;                  // … of which the first ones are needed for sure
  IdVector<ValueId, std::uint32_t> place_;  // of a value among them, or kNone
  std::vector<OpNode> ops_;                 // that may run again
  IdVector<OpId, std::uint32_t> op_place_;  // of an op among them, or kNone
  Bytes all_;
  std::int64_t step_ = 1;  // every cost is a multiple of it
  int scale_ = 0;
  std::int64_t highest_price_ = 0;
  MaxFlow flow_{0};
};

}  // namespace reprise
