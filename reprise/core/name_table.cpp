// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/name_table.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

namespace reprise {
namespace {

std::uint32_t hash_of(std::string_view name) {
  return static_cast<std::uint32_t>(std::hash<std::string_view>{}(name));
}

}  // namespace

void NameTable::reserve(std::size_t count) {
  names_.reserve(count);
  if (slots_.size() < 2 * count) resize(std::bit_ceil(2 * count));
}

bool NameTable::add(std::string_view name) {
  if (slots_.size() < 2 * (names_.size() + 1)) resize(std::max<std::size_t>(16, 2 * slots_.size()));
  const std::uint32_t hash = hash_of(name);
  Slot& slot = slots_[slot_of(name, hash)];
  if (slot.position != kNone) return false;
  slot = {hash, static_cast<std::uint32_t>(names_.size())};
  names_.push_back(name);
  return true;
}

std::optional<std::uint32_t> NameTable::find(std::string_view name) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[slot_of(name, hash_of(name))];
  return slot.position == kNone ? std::nullopt : std::optional(slot.position);
}

// Where `name` is, or the empty slot where it would go.
std::size_t NameTable::slot_of(std::string_view name, std::uint32_t hash) const {
  const std::size_t last = slots_.size() - 1;
  std::size_t at = hash & last;
  while (slots_[at].position != kNone &&
         (slots_[at].hash != hash || names_[slots_[at].position] != name)) {
    at = (at + 1) & last;
  }
  return at;
}

void NameTable::resize(std::size_t slots) {
  for (const Slot& slot : std::exchange(slots_, std::vector<Slot>(slots))) {
    if (slot.position == kNone) continue;
    slots_[slot_of(names_[slot.position], slot.hash)] = slot;
  }
}

}  // namespace reprise
