// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "reprise/core/units.h"

namespace reprise {

// A forward pass as the lower-set method sees it: nodes 0, 1, … with a cost and bytes, and which
// nodes each reads (each once). Acyclic. A node's gradient is as large as the node.
struct LowerSetGraph {
  struct Node {
    Cost cost;
    Bytes bytes;
    std::vector<std::uint32_t> reads;
  };
  std::vector<Node> nodes;
};

// A family of lower sets, the sets of nodes that hold all that their members read (Kusumoto et al.,
// NeurIPS'19, section 3). Each set before its supersets: the empty one first, then by size, ties by
// `discovery`; the set of all nodes comes last. Sums are 64 bits wide and checked when the family
// is made: OverflowError where eight times all bytes, or all costs, do not fit.
class LowerSets {
 public:
  // When to give up: past this many sets or bytes, or when `keep_going`, asked now and then, says
  // no.
  struct Room {
    std::size_t sets = std::size_t{1} << 16;  // whose pairs are gone through in seconds
    Bytes memory{std::int64_t{2} << 30};
    std::function<bool()> keep_going = [] { return true; };
  };

  // Each node with its ancestors, and all nodes: n + 1 sets, or n + 2. Discovery: by node. None
  // where there is no room.
  static std::optional<LowerSets> of_ancestors(const LowerSetGraph& graph, const Room& room);

  // All there are, by depth-first search: of the sets found and not yet grown, the newest grows by
  // each node that can join it, lowest first. None where there is no room. O(sets · (n + edges)).
  static std::optional<LowerSets> all(const LowerSetGraph& graph, const Room& room);

  std::size_t size() const { return facts_.size(); }
  bool contains(std::size_t set, std::uint32_t node) const {
    return (words(set)[node / 64] >> (node % 64) & 1) != 0;
  }
  bool is_subset(std::size_t smaller, std::size_t larger) const {
    const std::uint64_t* const a = words(smaller);
    const std::uint64_t* const b = words(larger);
    for (std::size_t w = 0; w < words_per_set_; ++w) {
      if ((a[w] & ~b[w]) != 0) return false;
    }
    return true;
  }

  std::int64_t bytes(std::size_t set) const { return facts_[set].bytes; }
  std::int64_t cost(std::size_t set) const { return facts_[set].cost; }
  std::uint32_t discovery(std::size_t set) const { return facts_[set].discovery; }
  std::uint32_t count(std::size_t set) const { return facts_[set].count; }

  // Bytes of the nodes outside that read a member, and of the nodes outside that those read too:
  // gradients and values that are there while the gradients of the set's last members are computed.
  std::int64_t bytes_above(std::size_t set) const { return facts_[set].bytes_above; }

  // The members that a node outside reads, rising.
  std::span<const std::uint32_t> boundary(std::size_t set) const {
    const std::size_t begin = set == 0 ? 0 : facts_[set - 1].boundary_end;
    return {boundaries_.data() + begin, facts_[set].boundary_end - begin};
  }

 private:
  struct Facts {
    std::int64_t bytes = 0;
    std::int64_t cost = 0;
    std::int64_t bytes_above = 0;
    std::size_t boundary_end = 0;
    std::uint32_t count = 0;
    std::uint32_t discovery = 0;
  };

  LowerSets(std::size_t words_per_set, std::vector<std::uint64_t> discovered);
  const std::uint64_t* words(std::size_t set) const { return bits_.data() + set * words_per_set_; }
  bool find_facts(const LowerSetGraph& graph, const Room& room);  // false: no room

  std::size_t words_per_set_;
  std::vector<std::uint64_t> bits_;  // a set after the other
  std::vector<Facts> facts_;
  std::vector<std::uint32_t> boundaries_;
};

}  // namespace reprise
