// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/stitched_plans.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "reprise/core/simulator.h"
#include "reprise/solvers/search/blocks.h"
#include "reprise/solvers/search/ways.h"

namespace reprise {
namespace {

constexpr std::array<std::size_t, 2> kLeastOps{1, 8};  // of a block: small blocks and larger ones
constexpr std::int64_t kSlack = 4;  // one part of the budget, looked at beyond it

constexpr Cost kMostCost{std::int64_t{1} << 48};  // of all ops once: no sum passes 64 bits

// Memory is counted in slots, from none to all of them.
using Slots = std::int64_t;
constexpr Slots kMostSlots = 512;

// The cheapest way through each stretch of blocks, for each amount of memory. A stretch begins with
// what its first block reads, which is there all the time, and ends with that block's backward ops.
class Stretches {
 public:
  Stretches(const Graph& graph, std::span<const Block> blocks, std::span<const Ways* const> ways,
            Bytes memory)
      : graph_(graph),
        blocks_(blocks),
        ways_(ways),
        slot_(std::max<std::int64_t>(1, memory.count() / kMostSlots)),
        cells_(blocks.size() * blocks.size() * (kMostSlots + 1)) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      forward_.push_back(forward_.back() + forward_cost(blocks_[b]));
      kept_.push_back(kept_.back() + kept_bytes(blocks_[b]));
      stays_.push_back(stays_.back() + ways_[b]->pass().stays);
    }
    for (std::size_t length = 1; length <= blocks_.size(); ++length) {
      for (std::size_t first = 0; first + length <= blocks_.size(); ++first) {
        take_ways({first, first + length});
        take_splits({first, first + length});
      }
    }
  }

  // In so much memory, if it can be done.
  std::optional<PlanOrder> plan(Slots slots) const {
    const Stretch all{0, blocks_.size()};
    if (cells_[index(all, slots)].again == kNever) return std::nullopt;
    Writing writing{{}, OpSet(graph_.ops().size(), false)};
    write(all, slots, writing);
    return plan_order(graph_, std::move(writing.order));
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Stretch {
    std::size_t first;  // block
    std::size_t end;
  };
  struct Cell {
    std::int64_t again = kNever;  // what it costs to run again
    std::size_t way = 0;          // of the first block, where the split is at the end
    std::size_t split = 0;        // else: the blocks before it go forward only, and again later
  };
  struct Writing {
    std::vector<OpId> order;
    OpSet ran;
  };

  Cost forward_cost(const Block& block) const {
    Cost cost{0};
    for (const OpId op : block.forward) {
      if (graph_.recomputable(op)) cost += graph_.cost(op);
    }
    return cost;
  }

  Bytes kept_bytes(const Block& block) const {
    Bytes bytes{0};
    for (const OpId op : block.backward) {
      for (const ValueId output : graph_.outputs(op)) {
        if (graph_.kept(output)) bytes += graph_.bytes(output);
      }
    }
    return bytes;
  }

  std::size_t index(Stretch stretch, Slots slots) const {
    const std::size_t number = stretch.first * blocks_.size() + stretch.end - 1;
    return number * (kMostSlots + 1) + static_cast<std::size_t>(slots);
  }

  Slots slots_of(Bytes bytes) const { return (bytes.count() + slot_ / 2) / slot_; }

  // What is held of the blocks of a stretch that went forward only, while later ones run.
  Slots held_by(Stretch passed) const {
    const std::size_t last = passed.end - 1;
    return slots_of(stays_[last] - stays_[passed.first] + ways_[last]->pass().held);
  }
  // What is there for good once the backward ops of a stretch have run.
  Slots kept_by(Stretch done) const { return slots_of(kept_[done.end] - kept_[done.first]); }

  // What the stretch costs where memory is left to it after `slots`, of which there are `all`.
  std::int64_t again(Stretch stretch, Slots all, Slots slots) const {
    if (stretch.first == stretch.end) return 0;
    return all < slots ? kNever : cells_[index(stretch, all - slots)].again;
  }

  void offer(Stretch stretch, Slots slots, const Cell& candidate) {
    Cell& best = cells_[index(stretch, slots)];
    if (candidate.again < best.again) best = candidate;
  }

  void take_ways(Stretch stretch) {
    const Stretch later{stretch.first + 1, stretch.end};
    const std::vector<Way>& ways = ways_[stretch.first]->all();
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const Slots held = slots_of(ways[w].held);
      const Slots least =
          std::max(slots_of(ways[w].peak_before), slots_of(ways[w].peak_after) + kept_by(later));
      for (Slots slots = least; slots <= kMostSlots; ++slots) {
        const std::int64_t inside = again(later, slots, held);
        if (inside == kNever) continue;
        offer(stretch, slots, {inside + ways[w].again.count(), w, stretch.end});
      }
    }
  }

  void take_splits(Stretch stretch) {
    Slots least = 0;  // to go forward so far
    for (std::size_t split = stretch.first + 1; split < stretch.end; ++split) {
      const Stretch passed{stretch.first, split};
      const Stretch later{split, stretch.end};
      const Bytes stays = stays_[split - 1] - stays_[stretch.first];
      least = std::max(least, slots_of(stays + ways_[split - 1]->pass().peak));
      const Cost cost = forward_[split] - forward_[stretch.first];
      for (Slots slots = least; slots <= kMostSlots; ++slots) {
        const std::int64_t first = again(later, slots, held_by(passed));
        const std::int64_t then = again(passed, slots, kept_by(later));
        if (first == kNever || then == kNever) continue;
        offer(stretch, slots, {first + then + cost.count(), 0, split});
      }
    }
  }

  void write(Stretch stretch, Slots slots, Writing& out) const {
    if (stretch.first == stretch.end) return;
    const Cell& best = cells_[index(stretch, slots)];
    if (best.split < stretch.end) {
      const Stretch passed{stretch.first, best.split};
      const Stretch later{best.split, stretch.end};
      for (std::size_t b = passed.first; b < passed.end; ++b) {
        for (const OpId op : blocks_[b].forward) run(op, out);
      }
      write(later, slots - held_by(passed), out);
      write(passed, slots - kept_by(later), out);
      return;
    }
    const Block& block = blocks_[stretch.first];
    const Way& way = ways_[stretch.first]->all()[best.way];
    for (const std::uint32_t at : way.before) run(op_at(block, at), out);
    write({stretch.first + 1, stretch.end}, slots - slots_of(way.held), out);
    for (const std::uint32_t at : way.after) run(op_at(block, at), out);
  }

  // After the forward ops comes the one that stands for all in between.
  static OpId op_at(const Block& block, std::uint32_t position) {
    const std::size_t forward = block.forward.size();
    return position < forward ? block.forward[position] : block.backward[position - forward - 1];
  }

  void run(OpId op, Writing& out) const {
    if (out.ran[op] && !graph_.recomputable(op)) return;
    out.ran[op] = true;
    out.order.push_back(op);
  }

  const Graph& graph_;
  std::span<const Block> blocks_;
  std::span<const Ways* const> ways_;   // a block
  std::int64_t slot_;                   // bytes
  std::vector<Cost> forward_{Cost{0}};  // of all blocks before one: to run again …
  std::vector<Bytes> kept_{Bytes{0}};   // … what their backward ops leave for good …
  std::vector<Bytes> stays_{Bytes{0}};  // … and what can't be made again
  std::vector<Cell> cells_;
};

// Adds plans in more and more memory, and in that which comes nearest to the budget.
void stitch(const Graph& graph, const std::vector<Block>& blocks, Bytes budget,
            const std::function<bool()>& must_stop, std::vector<PlanOrder>& plans) {
  if (blocks.empty()) return;
  std::map<std::size_t, Ways> ways;  // a kind of block
  std::vector<const Ways*> ways_of;
  for (const Block& block : blocks) {
    if (must_stop()) return;
    ways_of.push_back(&ways.try_emplace(block.kind, graph, block, must_stop).first->second);
  }
  const std::size_t before = plans.size();
  const Bytes plain = base_peak(graph);
  Bytes memory = std::max(budget + Bytes{budget.count() / kSlack}, Bytes{1});
  while (plans.size() == before && memory < plain + plain && !must_stop()) {
    const Stretches stretches(graph, blocks, ways_of, memory);
    Slots low = 0;  // the plan fits, if there is one
    Slots high = kMostSlots + 1;
    while (high - low > 1 && !must_stop()) {
      const Slots middle = (low + high) / 2;
      auto plan = stretches.plan(middle);
      (plan && plan->peak > budget ? high : low) = middle;
      if (plan) plans.push_back(std::move(*plan));
    }
    memory = memory + memory;
  }
}

}  // namespace

std::vector<PlanOrder> stitched_plans(const Graph& graph, Bytes budget,
                                      const std::function<bool()>& must_stop) {
  std::vector<PlanOrder> plans;
  if (base_peak(graph) <= budget || graph.base_cost() > kMostCost) return plans;
  for (const std::size_t least_ops : kLeastOps) {
    stitch(graph, find_blocks(graph, {least_ops}), budget, must_stop, plans);
  }
  sort_best_first(plans, Budget{budget});
  return plans;
}

}  // namespace reprise
