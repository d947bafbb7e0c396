// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise {

// Bytes in use at each of many slots, of which some count: adds over a range, and knows the largest
// of those that count. O(log slots) an addition, O(1) for the largest.
//
// What is added up at a slot stays below 2^60 in size.
class PeakTree {
 public:
  explicit PeakTree(std::size_t slots);  // none counts

  void add(std::uint32_t begin, std::uint32_t end, std::int64_t bytes);  // to begin .. end-1
  void count_in(std::uint32_t slot) { add(slot, slot + 1, kOut); }
  void leave_out(std::uint32_t slot) { add(slot, slot + 1, -kOut); }

  std::int64_t peak() const { return most_[1]; }  // hugely negative where no slot counts
  std::uint32_t peak_slot() const;                // the first that has it
  std::int64_t at(std::uint32_t slot) const;      // of a slot that counts

 private:
  static constexpr std::int64_t kOut = std::int64_t{1} << 61;

  void add_below(std::size_t node, std::int64_t bytes);
  void settle(std::size_t node);

  std::size_t leaves_;              // a power of two; the first and one after the last slot idle
  std::vector<std::int64_t> most_;  // a node: the largest below it, what was added to it included …
  std::vector<std::int64_t> added_;  // … which is this; what was added further up is not
};

}  // namespace reprise
