// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/lower_sets/program.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace reprise {
namespace {

constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();

// The best state of each slice of kept cost while one set is dealt with: the least bytes, ties to
// the larger cost, then to the first.
class Slices {
 public:
  struct Entry {
    std::int64_t bytes = kInfinite;
    std::int64_t cost = 0;
    std::uint32_t from = 0;
  };

  // As many slices as costs where that is at most `most`, else fewer, of equal width.
  Slices(std::int64_t all_cost, std::size_t most) {
    while (static_cast<std::uint64_t>(all_cost) >> shift_ >= most && shift_ < 63) ++shift_;
    entries_.resize((static_cast<std::size_t>(all_cost) >> shift_) + 1);
  }

  void add(std::int64_t cost, std::int64_t bytes, std::uint32_t from) {
    const auto slice = static_cast<std::size_t>(cost >> shift_);
    Entry& entry = entries_[slice];
    if (bytes > entry.bytes || (bytes == entry.bytes && cost <= entry.cost)) return;
    entry = {bytes, cost, from};
    lowest_ = std::min(lowest_, slice);
    highest_ = std::max(highest_, slice);
  }

  // Hands out the entries that no other beats, by rising cost, and forgets all.
  template <class Take>
  void take_front(Take take) {
    front_.clear();
    std::int64_t least = kInfinite;
    for (std::size_t slice = highest_ + 1; slice-- > lowest_;) {
      if (entries_[slice].bytes < least) {
        least = entries_[slice].bytes;
        front_.push_back(entries_[slice]);
      }
      entries_[slice] = {};
    }
    lowest_ = entries_.size();
    highest_ = 0;
    for (std::size_t i = front_.size(); i-- > 0;) take(front_[i]);
  }

 private:
  unsigned shift_ = 0;
  std::vector<Entry> entries_;
  std::vector<Entry> front_;
  std::size_t lowest_ = SIZE_MAX;
  std::size_t highest_ = 0;
};

}  // namespace

LowerSetSequence sequence_of(const LowerSetGraph& graph, const LowerSets& family,
                             std::span<const std::size_t> sets) {
  LowerSetSequence sequence;
  sequence.segments.assign(graph.nodes.size(), 0);
  for (std::size_t i = 1; i < sets.size(); ++i) {
    const std::size_t before = sets[i - 1];
    const std::size_t set = sets[i];
    const std::int64_t made = 2 * (family.bytes(set) - family.bytes(before));
    sequence.peak =
        std::max(sequence.peak, sequence.kept_bytes + Bytes{made + family.bytes_above(set)});
    for (std::uint32_t node = 0; node < graph.nodes.size(); ++node) {
      if (family.contains(before, node) || !family.contains(set, node)) continue;
      sequence.segments[node] = sequence.count;
    }
    for (const std::uint32_t node : family.boundary(set)) {
      if (family.contains(before, node)) continue;
      sequence.kept_bytes += graph.nodes[node].bytes;
      sequence.kept_cost += graph.nodes[node].cost;
    }
    ++sequence.count;
  }
  return sequence;
}

std::optional<LowerSetProgram::Front> LowerSetProgram::run(Bytes budget,
                                                           const Options& options) const {
  const std::size_t count = family_.size();
  const std::int64_t all_cost = family_.cost(count - 1);
  const std::size_t most_states = std::min<std::size_t>(
      UINT32_MAX - 1, static_cast<std::size_t>(options.room.memory.count()) / sizeof(Front::State));
  const std::int64_t within = std::min(budget, largest_budget()).count();
  std::int64_t next_budget = kInfinite;
  Front front;
  front.family_ = &family_;
  front.graph_ = &graph_;

  // Of each set that has states: where they begin and end. The first has the least bytes.
  struct Reached {
    std::int64_t least;  // kept bytes
    std::int64_t bytes;  // of the set, twice
    std::uint32_t set;
    std::uint32_t begin;
    std::uint32_t end;
  };
  std::vector<Reached> reached{{0, 0, 0, 0, 1}};
  front.states_.push_back({0, 0, Front::kNone, 0});
  Slices slices(all_cost, std::max<std::size_t>(options.states_per_set, 1));
  for (std::size_t set = 1; set < count; ++set) {
    if (set % 64 == 0 && !options.room.keep_going()) return std::nullopt;
    const std::int64_t need = 2 * family_.bytes(set) + family_.bytes_above(set);
    const std::int64_t lowest = options.at_least - (all_cost - family_.cost(set));
    const auto boundary = family_.boundary(set);
    for (const Reached& from : reached) {
      const std::int64_t room = within - (need - from.bytes);
      if (from.least > room) {
        next_budget = std::min(next_budget, from.least + need - from.bytes);
        continue;
      }
      if (!family_.is_subset(from.set, set)) continue;
      std::int64_t bytes = 0;
      std::int64_t cost = 0;
      for (const std::uint32_t node : boundary) {
        if (family_.contains(from.set, node)) continue;
        bytes += graph_.nodes[node].bytes.count();
        cost += graph_.nodes[node].cost.count();
      }
      for (std::uint32_t i = from.begin; i < from.end; ++i) {
        const Front::State& state = front.states_[i];
        if (state.bytes > room) {
          next_budget = std::min(next_budget, state.bytes + need - from.bytes);
          break;
        }
        if (state.cost + cost >= lowest) slices.add(state.cost + cost, state.bytes + bytes, i);
      }
    }
    const auto begin = static_cast<std::uint32_t>(front.states_.size());
    slices.take_front([&](const Slices::Entry& entry) {
      front.states_.push_back(
          {entry.bytes, entry.cost, entry.from, static_cast<std::uint32_t>(set)});
    });
    const auto end = static_cast<std::uint32_t>(front.states_.size());
    if (end > most_states) return std::nullopt;
    if (begin == end) continue;
    reached.push_back({front.states_[begin].bytes, 2 * family_.bytes(set),
                       static_cast<std::uint32_t>(set), begin, end});
  }
  if (reached.back().set == count - 1) {
    for (std::uint32_t i = reached.back().begin; i < reached.back().end; ++i) {
      front.last_.push_back(i);
    }
  }
  front.next_budget_ = Bytes{next_budget};
  return front;
}

LowerSetSequence LowerSetProgram::Front::sequence(std::size_t i) const {
  std::vector<std::size_t> sets;
  for (std::uint32_t at = last_[i]; at != kNone; at = states_[at].from) {
    sets.push_back(states_[at].set);
  }
  std::reverse(sets.begin(), sets.end());
  return sequence_of(*graph_, *family_, sets);
}

std::optional<Bytes> LowerSetProgram::smallest_budget(Bytes possible,
                                                      const LowerSets::Room& room) const {
  Options least;
  least.states_per_set = 1;
  least.room = room;
  Bytes lowest;  // nothing below is
  while (lowest < possible) {
    const Bytes middle{lowest.count() + (possible - lowest).count() / 2};
    const auto front = run(middle, least);
    if (!front) return std::nullopt;
    if (front->size() > 0) {
      possible = front->sequence(0).peak;
    } else {
      lowest = front->next_budget_;
    }
  }
  return possible;
}

}  // namespace reprise
