// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "reprise/core/graph.h"

namespace reprise::cli {

// "31.2 ms", "58.9 GFLOP", "46,319": a cost for people.
std::string to_words(Cost cost, CostUnit unit);

// "1.20 GiB (1288490188 B)": for where two sizes have to be told apart.
std::string exactly(Bytes bytes);

// "+14.2 %", "+0.031 %", "0 %"
std::string percent(double fraction);

// "1 op", "2 ops"
std::string count(std::size_t number, std::string_view what);

// "layer1.conv (Convolution)": an op's name and, where it says more, its kind.
std::string name_and_kind(const Graph& graph, OpId op);

// How many character cells a UTF-8 text takes, each code point counting one.
std::size_t width(std::string_view text);
std::string pad_left(std::string_view text, std::size_t cells);
std::string pad_right(std::string_view text, std::size_t cells);

// `text` for a cell of a Markdown table.
std::string for_markdown(std::string text);

// Is it a terminal that understands escape codes?
bool is_terminal(std::FILE* file);

// Colours for a terminal; nothing where `out` is none or NO_COLOR is set.
class Paint {
 public:
  explicit Paint(std::FILE* out = stdout);
  std::string bold(std::string_view text) const { return paint("1", text); }
  std::string dim(std::string_view text) const { return paint("2", text); }
  std::string red(std::string_view text) const { return paint("31", text); }
  std::string blue(std::string_view text) const { return paint("34", text); }
  std::string yellow(std::string_view text) const { return paint("33", text); }

 private:
  std::string paint(std::string_view code, std::string_view text) const;
  bool on_;
};

// A decimal number and what follows it: "1.5h", "20%". None where it does not begin with one.
struct NumberAndUnit {
  double number = 0;
  std::string unit;
};
std::optional<NumberAndUnit> number_and_unit(std::string_view text);

}  // namespace reprise::cli
