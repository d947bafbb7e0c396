// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/stitched_plans.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/core/units.h"
#include "reprise/solvers/bounds/smallest_peak.h"
#include "reprise/solvers/search/blocks.h"
#include "reprise/solvers/search/cut_plans.h"

namespace reprise {
namespace {

constexpr std::array<std::size_t, 2> kLeastOps{1, 8};  // of a block: small blocks and larger ones
constexpr std::int64_t kSlots = 512;                   // that memory is counted in
constexpr std::int64_t kSlack = 4;     // one part of the budget, looked at beyond it
constexpr std::int64_t kHeld = 8;      // shares of what a block can hold, to solve it for …
constexpr std::int64_t kPeaks = 3;     // … halvings of its peak, likewise
constexpr int kPolls = 100;            // of `must_stop`, in each
constexpr std::size_t kMostWays = 40;  // of a block, that are weighed

// One way through a block. Ops are positions: its forward ops, the one in between, its backward
// ops.
struct Way {
  std::vector<std::uint32_t> before;  // what comes in between
  std::vector<std::uint32_t> after;
  Bytes peak_before;
  Bytes peak_after;
  Bytes held;  // in between
  Cost again;  // of what runs again
};

// Forward alone, for nothing but the next block.
struct Pass {
  Bytes peak;
  Bytes held;  // after it: what is handed on, and what can't be made again
};

class Ways {
 public:
  Ways(const Graph& graph, const Block& block, const std::function<bool()>& must_stop)
      : between_(static_cast<std::uint32_t>(block.forward.size())) {
    const Graph alone = block_graph(graph, block, Bytes{0});
    std::vector<OpId> program;
    for (const OpId op : alone.ops()) program.push_back(op);
    add(alone, program);
    const Way all = ways_.front();
    const Bytes most = std::max(all.peak_before, all.peak_after);

    std::vector<OpId> twice;
    for (const OpId op : alone.ops()) {
      twice.push_back(op);
      if (op.index != between_) continue;
      for (std::uint32_t i = 0; i < between_; ++i) {
        if (alone.recomputable(OpId{i})) twice.push_back(OpId{i});
      }
    }
    add(alone, twice);
    pass_ = {ways_.back().peak_before, ways_.back().held};

    const Bytes floor = smallest_peak_bound(alone).bytes;
    for (std::int64_t p = 0; p <= kPeaks; ++p) {
      const Bytes peak = floor + Bytes{(most - floor).count() >> p};
      for (std::int64_t h = 0; h < kHeld; ++h) {
        const auto held = Bytes{static_cast<std::int64_t>(Wide{all.held.count()} * h / kHeld)};
        if (held > peak || must_stop()) continue;
        int polls = kPolls;
        const Graph shared = block_graph(graph, block, peak - held);
        for (const PlanOrder& plan :
             cut_plans(shared, program, peak, [&] { return --polls < 0 || must_stop(); })) {
          add(alone, plan.order);
        }
      }
    }
    keep_the_good();
  }

  const std::vector<Way>& all() const { return ways_; }
  const Pass& pass() const { return pass_; }

 private:
  void add(const Graph& alone, const std::vector<OpId>& order) {
    const Plan plan = with_earliest_frees(alone, order);
    const Replay replay = simulate(alone, plan);
    Way way;
    way.again = replay.cost - alone.base_cost();
    bool is_after = false;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].kind() != StepKind::compute) continue;
      const std::uint32_t op = plan.steps[i].op().index;
      if (op == between_) {
        is_after = true;
        way.held = replay.in_use[i];
        for (const ValueId output : alone.outputs(OpId{op})) way.held -= alone.bytes(output);
        continue;
      }
      (is_after ? way.after : way.before).push_back(op);
      Bytes& peak = is_after ? way.peak_after : way.peak_before;
      peak = std::max(peak, replay.in_use[i]);
    }
    ways_.push_back(std::move(way));
  }

  // No way stays that another one is as good as in everything; of too many, some.
  void keep_the_good() {
    const auto order = [](const Way& a, const Way& b) {
      return std::tie(a.again, a.held, a.peak_after, a.peak_before) <
             std::tie(b.again, b.held, b.peak_after, b.peak_before);
    };
    std::sort(ways_.begin(), ways_.end(), order);
    std::vector<Way> good;
    for (Way& way : ways_) {
      const bool is_worse = std::any_of(good.begin(), good.end(), [&](const Way& other) {
        return other.held <= way.held && other.peak_after <= way.peak_after &&
               other.peak_before <= way.peak_before;
      });
      if (!is_worse) good.push_back(std::move(way));
    }
    ways_.clear();
    const std::size_t count = std::min(good.size(), kMostWays);
    for (std::size_t i = 0; i < count; ++i) {
      ways_.push_back(std::move(good[i * good.size() / count]));
    }
  }

  std::uint32_t between_;
  std::vector<Way> ways_;
  Pass pass_;
};

// The cheapest way through each stretch of blocks, for each amount of memory.
class Stretches {
 public:
  Stretches(const Graph& graph, std::vector<Block> blocks, std::vector<const Ways*> ways,
            Bytes memory)
      : graph_(graph),
        blocks_(std::move(blocks)),
        ways_(std::move(ways)),
        slot_(std::max<std::int64_t>(1, memory.count() / kSlots)),
        cells_(blocks_.size() * blocks_.size() * kAmounts) {
    const auto count = static_cast<std::uint32_t>(blocks_.size());
    for (std::uint32_t b = 0; b < count; ++b) {
      Cost cost{0};
      Bytes kept{0};
      for (const OpId op : blocks_[b].forward) {
        if (graph.recomputable(op)) cost += graph.cost(op);
      }
      for (const OpId op : blocks_[b].backward) {
        for (const ValueId output : graph.outputs(op)) {
          if (graph.kept(output)) kept += graph.bytes(output);
        }
      }
      forward_.push_back(forward_.back() + cost);
      kept_.push_back(kept_.back() + kept);
    }
    for (std::uint32_t length = 1; length <= count; ++length) {
      for (std::uint32_t first = 0; first + length <= count; ++first) {
        fill(first, first + length);
      }
    }
  }

  // In this many slots of memory, if it can be done.
  std::optional<PlanOrder> plan(std::int64_t slots) const {
    const auto count = static_cast<std::uint32_t>(blocks_.size());
    if (cell(0, count, slots).again == kNever) return std::nullopt;
    Writing writing{{}, OpSet(graph_.ops().size(), false)};
    write(0, count, slots, writing);
    return plan_order(graph_, std::move(writing.order));
  }

  static constexpr std::int64_t kAmounts = kSlots + 1;

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Cell {
    std::int64_t again = kNever;  // what it costs to run again
    std::uint32_t way = 0;        // of the first block; or, where there are no more of them, …
    std::uint32_t split = 0;      // … up to which block it goes forward only
  };

  struct Writing {
    std::vector<OpId> order;
    OpSet ran;
  };

  Cell& cell(std::uint32_t first, std::uint32_t end, std::int64_t slots) {
    const std::size_t stretch = first * blocks_.size() + end - 1;
    return cells_[stretch * kAmounts + static_cast<std::size_t>(slots)];
  }
  const Cell& cell(std::uint32_t first, std::uint32_t end, std::int64_t slots) const {
    return const_cast<Stretches*>(this)->cell(first, end, slots);
  }

  std::int64_t slots_of(Bytes bytes) const { return (bytes.count() + slot_ / 2) / slot_; }

  // One more way to get through a stretch, from `least` slots on; `others` says what the stretches
  // inside it cost.
  template <class Others>
  void offer(std::uint32_t first, std::uint32_t end, std::int64_t least, Cost more, Others others,
             std::uint32_t way, std::uint32_t split) {
    for (std::int64_t slots = least; slots < kAmounts; ++slots) {
      const std::int64_t inside = others(slots);
      if (inside == kNever) continue;
      Cell& best = cell(first, end, slots);
      const std::int64_t again = inside + more.count();
      if (again < best.again) best = {again, way, split};
    }
  }

  void fill(std::uint32_t first, std::uint32_t end) {
    const std::int64_t after_later = slots_of(kept_[end] - kept_[first + 1]);
    const std::vector<Way>& ways = ways_[first]->all();
    for (std::uint32_t w = 0; w < ways.size(); ++w) {
      const std::int64_t held = slots_of(ways[w].held);
      const std::int64_t least =
          std::max(slots_of(ways[w].peak_before), slots_of(ways[w].peak_after) + after_later);
      offer(
          first, end, std::max(least, end - first > 1 ? held : 0), ways[w].again,
          [&](std::int64_t m) {
            return end - first > 1 ? cell(first + 1, end, m - held).again : 0;
          },
          w, end);
    }
    Bytes held{0};  // that can't be made again
    std::int64_t pass = 0;
    for (std::uint32_t split = first + 1; split < end; ++split) {
      const Pass& last = ways_[split - 1]->pass();
      pass = std::max(pass, slots_of(held + last.peak));
      const std::int64_t across = slots_of(held + last.held);
      held += last.held - handed_on(split - 1);
      const std::int64_t later = slots_of(kept_[end] - kept_[split]);
      offer(
          first, end, std::max({pass, across, later}), forward_[split] - forward_[first],
          [&](std::int64_t m) {
            const std::int64_t one = cell(split, end, m - across).again;
            const std::int64_t two = cell(first, split, m - later).again;
            return one == kNever || two == kNever ? kNever : one + two;
          },
          0, split);
    }
  }

  Bytes handed_on(std::uint32_t block) const {
    Bytes bytes{0};
    const OpId last = blocks_[block].forward.back();
    for (const ValueId output : graph_.outputs(last)) {
      if (graph_.recomputable(last)) bytes += graph_.bytes(output);
    }
    return std::min(bytes, ways_[block]->pass().held);
  }

  void write(std::uint32_t first, std::uint32_t end, std::int64_t slots, Writing& out) const {
    const Cell& best = cell(first, end, slots);
    if (best.split < end) {
      const std::uint32_t split = best.split;
      Bytes held{0};
      for (std::uint32_t b = first; b < split; ++b) {
        for (const OpId op : blocks_[b].forward) run(op, out);
        if (b + 1 < split) held += ways_[b]->pass().held - handed_on(b);
      }
      const std::int64_t across = slots_of(held + ways_[split - 1]->pass().held);
      write(split, end, slots - across, out);
      write(first, split, slots - slots_of(kept_[end] - kept_[split]), out);
      return;
    }
    const Way& way = ways_[first]->all()[best.way];
    for (const std::uint32_t at : way.before) run(op_at(first, at), out);
    if (end - first > 1) write(first + 1, end, slots - slots_of(way.held), out);
    for (const std::uint32_t at : way.after) run(op_at(first, at), out);
  }

  OpId op_at(std::uint32_t block, std::uint32_t position) const {
    const std::vector<OpId>& forward = blocks_[block].forward;
    return position < forward.size() ? forward[position]
                                     : blocks_[block].backward[position - forward.size() - 1];
  }

  void run(OpId op, Writing& out) const {
    if (out.ran[op] && !graph_.recomputable(op)) return;
    out.ran[op] = true;
    out.order.push_back(op);
  }

  const Graph& graph_;
  std::vector<Block> blocks_;
  std::vector<const Ways*> ways_;       // a block
  std::int64_t slot_;                   // bytes
  std::vector<Cost> forward_{Cost{0}};  // of all blocks before one, as far as they can run again
  std::vector<Bytes> kept_{Bytes{0}};   // … likewise, what their backward ops make to be kept
  std::vector<Cell> cells_;
};

// Adds plans in more and more memory, and in that which comes nearest to the budget.
void stitch(const Graph& graph, const std::vector<Block>& blocks, Bytes budget,
            const std::function<bool()>& must_stop, std::vector<PlanOrder>& plans) {
  std::map<std::size_t, Ways> ways;  // a kind of block
  std::vector<const Ways*> ways_of;
  for (const Block& block : blocks) {
    if (must_stop()) return;
    ways_of.push_back(&ways.try_emplace(block.kind, graph, block, must_stop).first->second);
  }
  if (blocks.empty()) return;
  const std::size_t before = plans.size();
  const Bytes plain = base_peak(graph);
  Bytes memory = std::max(budget + Bytes{budget.count() / kSlack}, Bytes{1});
  while (plans.size() == before && memory < plain + plain && !must_stop()) {
    const Stretches stretches(graph, blocks, ways_of, memory);
    std::int64_t low = 0;  // slots: the plan fits, if there is one
    std::int64_t high = Stretches::kAmounts;
    while (high - low > 1 && !must_stop()) {
      const std::int64_t middle = (low + high) / 2;
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
  if (base_peak(graph) <= budget) return plans;
  for (const std::size_t least_ops : kLeastOps) {
    stitch(graph, find_blocks(graph, {least_ops}), budget, must_stop, plans);
  }
  std::stable_sort(plans.begin(), plans.end(), [&](const PlanOrder& a, const PlanOrder& b) {
    return better(a, b, Budget{budget});
  });
  return plans;
}

}  // namespace reprise
