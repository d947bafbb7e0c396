// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace reprise {

// Bad input: what was read or asked for breaks a rule that the message states, with its place.
// "No solution" is not an error but an Outcome; a bug of ours is a std::logic_error.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A name as messages show it: in quotes, and `printable`.
std::string in_quotes(std::string_view name);

// `text` for one line of a terminal: cut where it is longer than `most` bytes, with '?' for control
// characters and for bytes that are not UTF-8.
std::string printable(std::string_view text, std::size_t most);

// " (did you mean 'conv3.out'?)" where one of `known` is close to `name`, else "".
std::string did_you_mean(std::string_view name, std::span<const std::string_view> known);

bool has_control_character(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace reprise
