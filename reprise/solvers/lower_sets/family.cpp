// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/lower_sets/family.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace reprise {
namespace {

// Distinct sets of nodes in the order in which they were added, each a row of words.
class SetTable {
 public:
  explicit SetTable(std::size_t words) : words_(words), slots_(64, kNone) {}

  // False where it is there already.
  bool add(const std::vector<std::uint64_t>& set) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    const std::size_t slot = slot_of(set.data());
    if (slots_[slot] != kNone) return false;
    slots_[slot] = static_cast<std::uint32_t>(count_++);
    rows_.insert(rows_.end(), set.begin(), set.end());
    return true;
  }

  std::size_t size() const { return count_; }
  const std::uint64_t* row(std::size_t set) const { return rows_.data() + set * words_; }
  std::vector<std::uint64_t> take_rows() && { return std::move(rows_); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::size_t slot_of(const std::uint64_t* set) const {
    std::uint64_t hash = 0;
    for (std::size_t w = 0; w < words_; ++w) {
      hash = (hash ^ set[w]) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29;
    }
    std::size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot] != kNone && !std::equal(set, set + words_, row(slots_[slot]))) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  void grow() {
    slots_.assign(2 * slots_.size(), kNone);
    for (std::size_t set = 0; set < count_; ++set) {
      slots_[slot_of(row(set))] = static_cast<std::uint32_t>(set);
    }
  }

  std::size_t words_;
  std::size_t count_ = 0;
  std::vector<std::uint64_t> rows_;
  std::vector<std::uint32_t> slots_;  // a power of two
};

std::size_t words_for(const LowerSetGraph& graph) { return graph.nodes.size() / 64 + 1; }

bool has(const std::uint64_t* set, std::uint32_t node) {
  return (set[node / 64] >> (node % 64) & 1) != 0;
}

void insert(std::uint64_t* set, std::uint32_t node) {
  set[node / 64] |= std::uint64_t{1} << (node % 64);
}

// The need of a segment is at most five times all bytes (LowerSetProgram::largest_budget); eight
// times leave room for what is added on the way. Throws OverflowError.
void refuse_large_sums(const LowerSetGraph& graph) {
  Bytes bytes;
  Cost cost;
  for (const LowerSetGraph::Node& node : graph.nodes) {
    bytes += node.bytes;
    cost += node.cost;
  }
  bytes *= 8;
}

std::size_t most_sets(const LowerSets::Room& room, std::size_t words) {
  // Two copies while they are put in order; facts, slots and a boundary.
  const std::size_t bytes_per_set = 16 * words + 128;
  const auto memory = static_cast<std::size_t>(std::max(room.memory, Bytes{0}).count());
  return std::min(room.sets, memory / bytes_per_set);
}

// Nodes such that each comes after all that it reads.
std::vector<std::uint32_t> reading_order(const LowerSetGraph& graph) {
  std::vector<std::uint32_t> order;
  std::vector<std::size_t> missing(graph.nodes.size());
  std::vector<std::vector<std::uint32_t>> readers(graph.nodes.size());
  for (std::uint32_t node = 0; node < graph.nodes.size(); ++node) {
    missing[node] = graph.nodes[node].reads.size();
    if (missing[node] == 0) order.push_back(node);
    for (const std::uint32_t read : graph.nodes[node].reads) readers[read].push_back(node);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const std::uint32_t reader : readers[order[i]]) {
      if (--missing[reader] == 0) order.push_back(reader);
    }
  }
  return order;
}

}  // namespace

std::optional<LowerSets> LowerSets::of_ancestors(const LowerSetGraph& graph, const Room& room) {
  const std::size_t words = words_for(graph);
  if (graph.nodes.size() + 2 > most_sets(room, words)) return std::nullopt;
  const auto count = static_cast<std::uint32_t>(graph.nodes.size());
  std::vector<std::uint64_t> sets((count + 2) * words, 0);  // none, one a node, all
  for (const std::uint32_t node : reading_order(graph)) {
    std::uint64_t* const set = sets.data() + (node + 1) * words;
    insert(set, node);
    for (const std::uint32_t read : graph.nodes[node].reads) {
      const std::uint64_t* const ancestors = sets.data() + (read + 1) * words;
      for (std::size_t w = 0; w < words; ++w) set[w] |= ancestors[w];
    }
  }
  std::uint64_t* const everything = sets.data() + (count + 1) * words;
  for (std::uint32_t node = 0; node < count; ++node) insert(everything, node);
  for (std::uint32_t set = 0; set <= count; ++set) {
    if (!std::equal(everything, everything + words, sets.data() + set * words)) continue;
    sets.resize(sets.size() - words);
    break;
  }
  LowerSets family(words, std::move(sets));
  return family.find_facts(graph, room) ? std::optional(std::move(family)) : std::nullopt;
}

std::optional<LowerSets> LowerSets::all(const LowerSetGraph& graph, const Room& room) {
  const std::size_t words = words_for(graph);
  const std::size_t most = most_sets(room, words);
  SetTable table(words);
  std::vector<std::uint64_t> set(words, 0);
  table.add(set);
  std::vector<std::size_t> to_grow{0};
  for (std::size_t grown = 0; !to_grow.empty(); ++grown) {
    if (grown % 256 == 0 && !room.keep_going()) return std::nullopt;
    const std::size_t from = to_grow.back();
    to_grow.pop_back();
    for (std::uint32_t node = 0; node < graph.nodes.size(); ++node) {
      const std::uint64_t* const row = table.row(from);
      const auto& reads = graph.nodes[node].reads;
      const auto joined = [row](std::uint32_t read) { return has(row, read); };
      if (has(row, node) || !std::all_of(reads.begin(), reads.end(), joined)) continue;
      set.assign(row, row + words);
      insert(set.data(), node);
      if (!table.add(set)) continue;
      if (table.size() > most) return std::nullopt;
      to_grow.push_back(table.size() - 1);
    }
  }
  LowerSets family(words, std::move(table).take_rows());
  return family.find_facts(graph, room) ? std::optional(std::move(family)) : std::nullopt;
}

LowerSets::LowerSets(std::size_t words_per_set, std::vector<std::uint64_t> discovered)
    : words_per_set_(words_per_set) {
  const std::size_t count = discovered.size() / words_per_set;
  std::vector<std::uint32_t> sizes(count, 0);
  for (std::size_t i = 0; i < discovered.size(); ++i) {
    sizes[i / words_per_set] += static_cast<std::uint32_t>(std::popcount(discovered[i]));
  }
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return sizes[a] < sizes[b]; });
  bits_.reserve(discovered.size());
  facts_.reserve(count);
  for (const std::uint32_t set : order) {
    const auto begin = discovered.begin() + static_cast<std::ptrdiff_t>(set * words_per_set);
    bits_.insert(bits_.end(), begin, begin + static_cast<std::ptrdiff_t>(words_per_set));
    facts_.push_back({});
    facts_.back().count = sizes[set];
    facts_.back().discovery = set;
  }
}

bool LowerSets::find_facts(const LowerSetGraph& graph, const Room& room) {
  refuse_large_sums(graph);
  constexpr std::size_t kNone = SIZE_MAX;
  std::vector<std::size_t> read_from_outside(graph.nodes.size(), kNone);  // by this set, …
  std::vector<std::size_t> read_from_above(graph.nodes.size(), kNone);
  for (std::size_t set = 0; set < size(); ++set) {
    if (set % 256 == 0 && !room.keep_going()) return false;
    Facts& facts = facts_[set];
    for (std::uint32_t id = 0; id < graph.nodes.size(); ++id) {
      const LowerSetGraph::Node& node = graph.nodes[id];
      if (contains(set, id)) {
        facts.bytes += node.bytes.count();
        facts.cost += node.cost.count();
        continue;
      }
      bool above = false;
      for (const std::uint32_t read : node.reads) {
        read_from_outside[read] = set;
        above = above || contains(set, read);
      }
      if (!above) continue;
      facts.bytes_above += node.bytes.count();
      for (const std::uint32_t read : node.reads) {
        if (contains(set, read) || read_from_above[read] == set) continue;
        read_from_above[read] = set;
        facts.bytes_above += graph.nodes[read].bytes.count();
      }
    }
    for (std::uint32_t id = 0; id < graph.nodes.size(); ++id) {
      if (contains(set, id) && read_from_outside[id] == set) boundaries_.push_back(id);
    }
    facts.boundary_end = boundaries_.size();
  }
  return true;
}

}  // namespace reprise
