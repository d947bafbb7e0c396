// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/error.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace reprise {
namespace {

constexpr std::size_t kLongestNameShown = 200;

// Levenshtein distance. O(|a| |b|).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), is_control);
}

std::string in_quotes(std::string_view name) {
  std::string text = "'";
  for (const char c : name.substr(0, kLongestNameShown)) text += is_control(c) ? '?' : c;
  if (name.size() > kLongestNameShown) text += "…";
  return text + "'";
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() > kLongestNameShown) return "";
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
    if (longer - shorter < nearest) offer(candidate, edit_distance(name, candidate));
  }
  return guess.empty() ? "" : " (did you mean " + in_quotes(guess) + "?)";
}

}  // namespace reprise
