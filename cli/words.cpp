// SPDX-License-Identifier: Apache-2.0
#include "cli/words.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "reprise/core/budget.h"

namespace reprise::cli {
namespace {

// Three digits that count: "1.23", "12.3", "123".
std::string three_digits(double number) {
  return fmt::format("{:.{}f}", number, number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2);
}

std::string scaled(double number, const std::array<std::string_view, 5>& units) {
  std::size_t unit = 0;
  while (number >= 999.5 && unit + 1 < units.size()) {
    number /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} {}", number, units[0]);
  return fmt::format("{} {}", three_digits(number), units[unit]);
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

}  // namespace

std::string to_words(Cost cost, CostUnit unit) {
  const auto number = static_cast<double>(cost.count());
  switch (unit) {
    case CostUnit::units: return with_commas(cost.count());
    case CostUnit::ns: return scaled(number, {"ns", "us", "ms", "s", "ks"});
    case CostUnit::flops: return scaled(number, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"});
  }
  return "";
}

std::string exactly(Bytes bytes) {
  if (bytes < Bytes{1024}) return reprise::to_words(bytes);
  return fmt::format("{} ({} B)", reprise::to_words(bytes), bytes.count());
}

std::string percent(double fraction) {
  const double points = fraction * 100;
  if (points == 0) return "0 %";
  const double size = std::fabs(points);
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.0995 ? 2 : 4;
  return fmt::format("{:+.{}f} %", points, decimals);
}

std::string count(std::size_t number, std::string_view what) {
  return fmt::format("{} {}{}", with_commas(static_cast<std::int64_t>(number)), what,
                     number == 1 ? "" : "s");
}

std::string name_and_kind(const Graph& graph, OpId op) {
  const std::string& name = graph.name(op);
  const std::string& kind = graph.kind(op);
  if (kind.empty() || name.find(kind) != name.npos) return name;
  return fmt::format("{} ({})", name, kind);
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not a continuation byte
  }));
}

std::string pad_left(std::string_view text, std::size_t cells) {
  return std::string(cells - std::min(cells, width(text)), ' ') + std::string(text);
}

std::string pad_right(std::string_view text, std::size_t cells) {
  return std::string(text) + std::string(cells - std::min(cells, width(text)), ' ');
}

std::string for_markdown(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != text.npos; at += 2) text.insert(at, "\\");
  return text;
}

bool is_terminal(std::FILE* file) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(::fileno(file)) == 1 &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

Paint::Paint(std::FILE* out) {
  const char* no_color = std::getenv("NO_COLOR");
  on_ = is_terminal(out) && (no_color == nullptr || *no_color == '\0');
}

std::string Paint::paint(std::string_view code, std::string_view text) const {
  return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::optional<NumberAndUnit> number_and_unit(std::string_view text) {
  const bool begins = !text.empty() && std::string_view("0123456789.").find(text[0]) != text.npos;
  if (!begins) return std::nullopt;
  NumberAndUnit parsed;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed.number,
                                            std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  parsed.unit = std::string(end, text.data() + text.size());
  return parsed;
}

}  // namespace reprise::cli
