// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/solvers/search/peak_tree.h"

namespace reprise {

// A place in a Sequence. Runs stand at slots in the order in which they happen; many slots are
// empty.
using Slot = std::uint32_t;

// The runs of a plan in order, under change: each value is there from a run that makes it to the
// last one that reads it before it is made again. Knows cost and peak after every change, exactly
// as the simulator would for the plan with the earliest frees, in O(edges of the op · log slots).
//
// A sequence is right when each op runs, those that may not run again once, and no first run of an
// op comes before the first run of one it reads from. Changes can be undone, latest first.
class Sequence {
 public:
  // Bytes below 2^58, and room for plans of sixteen times the base cost and sixteen runs an op.
  static bool can_hold(const Graph& graph);
  static constexpr std::int64_t kMostCost = std::int64_t{1} << 61;  // whoever inserts sees to it

  // `order` is the computes of a right plan.
  Sequence(const Graph& graph, std::span<const OpId> order);

  const Graph& graph() const { return graph_; }
  std::int64_t cost() const { return cost_; }
  std::int64_t peak() const { return memory_.peak(); }
  Slot peak_slot() const { return memory_.peak_slot(); }
  Slot slots() const { return static_cast<Slot>(op_at_.size()); }
  std::vector<OpId> order() const;

  bool empty(Slot slot) const { return op_at_[slot] == kNone; }
  OpId at(Slot slot) const { return OpId{op_at_[slot]}; }  // where it is not empty
  std::span<const Slot> runs(OpId op) const { return runs_[op]; }
  const std::vector<OpId>& run_again() const { return run_again_; }  // more than once; no order

  // The run that makes what is there of an output of `op` at `slot`: the last before it, or kNone.
  Slot maker(OpId op, Slot slot) const;
  Slot next_maker(OpId op, Slot slot) const;  // the first run at `slot` or later, or slots()
  // One past the last slot at which the copy of `value` made at `made` counts.
  Slot end(ValueId value, Slot made) const;
  // The last slot that reads the copy made at `made`, or `made`; slots() where it is kept for good.
  Slot last_read(ValueId value, Slot made) const;
  // The first slot after `after` that reads `value`, before it is made again; or slots().
  Slot first_read(ValueId value, Slot after) const;

  // The first slot at which all inputs of `op` have been made once.
  Slot earliest(OpId op) const;
  // Nobody reads what this run makes, and it is not the only one.
  bool useless(OpId op, Slot slot) const;
  bool can_remove(OpId op, Slot slot) const;

  void insert(OpId op, Slot slot);  // at an empty slot not before earliest(op)
  void remove(OpId op, Slot slot);
  // An empty slot with no run between it and `slot`. Moves runs before it where there is none;
  // kNone where that would be too many.
  Slot gap_before(Slot slot);

  void undo();  // all changes since they were last forgotten
  void forget() { log_.clear(); }
  // Spreads the runs where gaps have become rare, and then forgets what could be undone.
  void make_room();

  static constexpr Slot kNone = UINT32_MAX;

 private:
  struct Change {
    OpId op;
    Slot slot;
    bool inserted;
  };

  void price(OpId op, Slot slot, std::int64_t sign);
  void put(OpId op, Slot slot);
  void take(OpId op, Slot slot);
  Slot last_read_between(ValueId value, Slot after, Slot before) const;
  Slot end_of(ValueId value, Slot made, Slot read, bool last_copy) const;
  bool overwrites(OpId op, ValueId input) const;
  void shift(Slot from, Slot to);
  void lay_out(std::span<const OpId> order);

  const Graph& graph_;
  std::vector<std::uint32_t> op_at_;
  IdVector<OpId, std::vector<Slot>> runs_;  // in order
  std::vector<OpId> run_again_;
  IdVector<OpId, std::uint32_t> place_in_run_again_;
  ValueSet overwritable_;
  PeakTree memory_{0};
  std::int64_t cost_ = 0;
  std::vector<Change> log_;
  Slot crowded_ = kNone;  // a slot before which gaps are rare
};

}  // namespace reprise
