// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/error.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace reprise {
namespace {

constexpr std::size_t kLongestNameShown = 200;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// How many letters to add, drop or replace, or neighbours to swap, from `a` to `b`, whatever
// their case. O(|a| |b|).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [&](std::size_t i, std::size_t j) { return lower(a[i]) == lower(b[j]); };
  std::vector<std::size_t> two_up(b.size() + 1);
  std::vector<std::size_t> up(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(two_up, up);
    std::swap(up, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = up[j - 1] + (same(i - 1, j - 1) ? 0 : 1);
      row[j] = std::min({up[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1)) {
        row[j] = std::min(row[j], two_up[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// U+0080 to U+009F, which terminals obey too.
bool is_c1_control(std::string_view text) {
  return text.size() > 1 && text[0] == '\xC2' && static_cast<unsigned char>(text[1]) < 0xA0;
}

// The bytes of the UTF-8 character that `text` begins with; none where it begins with no such.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t size = byte(0) < 0x80   ? 1
                           : byte(0) < 0xC2 ? 0
                           : byte(0) < 0xE0 ? 2
                           : byte(0) < 0xF0 ? 3
                           : byte(0) < 0xF5 ? 4
                                            : 0;
  if (size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  const bool too_long = (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xED && byte(1) > 0x9F;
  const bool past_the_last = byte(0) == 0xF4 && byte(1) > 0x8F;
  return too_long || surrogate || past_the_last ? 0 : size;
}

}  // namespace

bool has_control_character(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_control(text[i]) || is_c1_control(text.substr(i))) return true;
  }
  return false;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t size = character_size(rest);
    const std::size_t used = std::max<std::size_t>(1, size);
    if (text.size() - rest.size() + used > most) return out + "…";
    if (size == 0 || is_control(rest.front()) || is_c1_control(rest)) {
      out += '?';
    } else {
      out += rest.substr(0, size);
    }
    rest.remove_prefix(used);
  }
  return out;
}

std::string in_quotes(std::string_view name) {
  return "'" + printable(name, kLongestNameShown) + "'";
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() < 2 || name.size() > kLongestNameShown) return "";
  constexpr std::size_t kMostWork = 50'000'000;  // pairs of letters: a guess has to come at once
  std::size_t work = 0;
  std::size_t nearest = std::max<std::size_t>(1, name.size() / 3) + 1;
  std::string_view guess;
  const auto offer = [&](std::string_view candidate, std::size_t distance) {
    if (distance >= nearest) return;
    nearest = distance;
    guess = candidate;
  };
  for (const std::string_view candidate : known) {
    const std::size_t longer = std::max(name.size(), candidate.size());
    const std::size_t shorter = std::min(name.size(), candidate.size());
    if (shorter >= 3 && candidate.substr(0, name.size()) == name) offer(candidate, 0);
    if (longer - shorter >= nearest) continue;
    offer(candidate, edit_distance(name, candidate));
    work += longer * shorter;
    if (work > kMostWork) break;
  }
  return guess.empty() ? "" : " (did you mean " + in_quotes(guess) + "?)";
}

}  // namespace reprise
