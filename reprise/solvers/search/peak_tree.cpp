// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/peak_tree.h"

#include <algorithm>
#include <bit>

namespace reprise {

PeakTree::PeakTree(std::size_t slots)
    : leaves_(std::bit_ceil(slots + 2)), most_(2 * leaves_, -kOut), added_(leaves_, 0) {}

void PeakTree::add_below(std::size_t node, std::int64_t bytes) {
  most_[node] += bytes;
  if (node < leaves_) added_[node] += bytes;
}

void PeakTree::settle(std::size_t node) {
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

// Climbs from the two leaves just outside the range: whatever hangs between the two paths is in it.
void PeakTree::add(std::uint32_t begin, std::uint32_t end, std::int64_t bytes) {
  if (begin >= end) return;
  std::size_t left = leaves_ + begin;
  std::size_t right = leaves_ + end + 1;
  while ((left ^ right) != 1) {
    if (left % 2 == 0) add_below(left + 1, bytes);
    if (right % 2 == 1) add_below(right - 1, bytes);
    left /= 2;
    right /= 2;
    settle(left);
    settle(right);
  }
  for (left /= 2; left > 0; left /= 2) {
    const std::int64_t before = most_[left];
    settle(left);
    if (most_[left] == before) break;
  }
}

std::uint32_t PeakTree::peak_slot() const {
  std::size_t node = 1;
  while (node < leaves_) node = 2 * node + (most_[2 * node] >= most_[2 * node + 1] ? 0 : 1);
  return static_cast<std::uint32_t>(node - leaves_ - 1);
}

std::int64_t PeakTree::at(std::uint32_t slot) const {
  std::size_t node = leaves_ + slot + 1;
  std::int64_t bytes = most_[node];
  for (node /= 2; node > 0; node /= 2) bytes += added_[node];
  return bytes;
}

}  // namespace reprise
