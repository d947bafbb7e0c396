// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/lower_sets/square_root.h"

#include <algorithm>
#include <tuple>

namespace reprise {
namespace {

std::int64_t square_root(std::size_t number) {
  std::int64_t root = 1;
  while ((root + 1) * (root + 1) <= static_cast<std::int64_t>(number)) ++root;
  return root;
}

// Bytes of each set in the original's unit: the power of ten that brings all bytes down to 10^8,
// each node rounded down. Where the walk ends depends on it.
std::vector<std::int64_t> scaled_bytes(const LowerSetGraph& graph, const LowerSets& family) {
  std::int64_t unit = 1;
  while (family.bytes(family.size() - 1) / unit > 100'000'000) unit *= 10;
  std::vector<std::int64_t> scaled(family.size(), 0);
  for (std::size_t set = 0; set < family.size(); ++set) {
    for (std::uint32_t node = 0; node < graph.nodes.size(); ++node) {
      if (family.contains(set, node)) scaled[set] += graph.nodes[node].bytes.count() / unit;
    }
  }
  return scaled;
}

// Sets to choose from, by bytes, ties by discovery.
std::vector<std::size_t> candidates(const LowerSets& family,
                                    const std::vector<std::int64_t>& bytes) {
  std::vector<std::size_t> sets;
  for (std::size_t set = 0; set < family.size(); ++set) {
    const bool is_end = set == 0 || set + 1 == family.size();
    if (is_end || family.boundary(set).size() == 1) sets.push_back(set);
  }
  const auto key = [&](std::size_t set) { return std::tuple(bytes[set], family.discovery(set)); };
  std::sort(sets.begin(), sets.end(),
            [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return sets;
}

}  // namespace

SquareRootSequence square_root_sequence(const LowerSetGraph& graph, const LowerSets& family) {
  const std::size_t all = family.size() - 1;
  const std::vector<std::int64_t> bytes = scaled_bytes(graph, family);
  const std::vector<std::size_t> sets = candidates(family, bytes);
  SquareRootSequence result{{}, sets.size(), square_root(sets.size())};
  const std::int64_t step = bytes[all] / result.root;
  std::int64_t threshold = step;
  std::vector<std::size_t> taken{0};
  for (const std::size_t set : sets) {
    const std::size_t before = taken.back();
    if (set == 0 || (set != all && bytes[set] <= threshold)) continue;
    if (set == before || !family.is_subset(before, set)) continue;
    taken.push_back(set);
    while (step > 0 && threshold < bytes[set]) threshold += step;
  }
  result.sequence = sequence_of(graph, family, taken);
  return result;
}

}  // namespace reprise
