// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/budget.h"

#include <fmt/core.h>

#include <array>
#include <limits>

namespace reprise {
namespace {

// A decimal number, digits / scale.
struct Decimal {
  std::int64_t digits = 0;
  std::int64_t scale = 1;
};

struct Suffix {
  std::string_view name;
  std::int64_t factor;
};

constexpr std::array<Suffix, 9> kSuffixes{{{"B", 1},
                                           {"kB", 1'000},
                                           {"MB", 1'000'000},
                                           {"GB", 1'000'000'000},
                                           {"TB", 1'000'000'000'000},
                                           {"KiB", 1LL << 10},
                                           {"MiB", 1LL << 20},
                                           {"GiB", 1LL << 30},
                                           {"TiB", 1LL << 40}}};

constexpr std::string_view kForms =
    "bytes, a size such as 6GiB or 1.5GB, a share such as 50%, or min";

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw InputError(fmt::format("budget {}: {}", in_quotes(text), why));
}

// Takes the number off the front of `rest`.
Decimal take_decimal(std::string_view text, std::string_view& rest) {
  Decimal number;
  bool seen_point = false;
  std::size_t used = 0;
  std::size_t digits = 0;
  for (; used < rest.size(); ++used) {
    const char c = rest[used];
    if (c == '.' && !seen_point) {
      seen_point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    if (__builtin_mul_overflow(number.digits, 10, &number.digits) ||
        __builtin_add_overflow(number.digits, c - '0', &number.digits) ||
        (seen_point && __builtin_mul_overflow(number.scale, 10, &number.scale))) {
      refuse(text, "too many digits");
    }
    ++digits;
  }
  if (digits == 0) refuse(text, fmt::format("want {}", kForms));
  rest.remove_prefix(used);
  return number;
}

// floor(number * factor / divisor)
Bytes scaled(std::string_view text, Decimal number, std::int64_t factor, std::int64_t divisor) {
  const Wide bytes = Wide{number.digits} * factor / (Wide{number.scale} * divisor);
  if (bytes > std::numeric_limits<std::int64_t>::max()) {
    refuse(text, "more than 9223372036854775807 bytes");
  }
  return Bytes{static_cast<std::int64_t>(bytes)};
}

}  // namespace

Budget parse_budget(std::string_view text, Bytes base_peak) {
  if (text == "min") return Budget{std::nullopt};
  std::string_view rest = text;
  const Decimal number = take_decimal(text, rest);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (rest == "%") return Budget{scaled(text, number, base_peak.count(), 100)};
  if (rest.empty()) {
    if (number.scale != 1) refuse(text, "a number of bytes has to be whole");
    return Budget{Bytes{number.digits}};
  }
  std::array<std::string_view, kSuffixes.size()> names;
  for (std::size_t i = 0; i < kSuffixes.size(); ++i) {
    if (rest == kSuffixes[i].name) return Budget{scaled(text, number, kSuffixes[i].factor, 1)};
    names[i] = kSuffixes[i].name;
  }
  const std::string guess = did_you_mean(rest, names);
  refuse(text, guess.empty() ? fmt::format("want {}", kForms)
                             : fmt::format("unknown unit {}{}", in_quotes(rest), guess));
}

Bytes hundredths(Bytes bytes, std::int64_t share) {
  const std::int64_t whole = bytes.count() / 100;
  const std::int64_t rest = bytes.count() % 100;
  return Bytes{whole} * share + Bytes{rest * share / 100};
}

std::string to_words(Bytes bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto amount = static_cast<double>(bytes.count());
  std::size_t unit = 0;
  while (amount >= 1023.5 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", amount, decimals, kUnits[unit]);
}

}  // namespace reprise
