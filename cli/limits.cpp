// SPDX-License-Identifier: Apache-2.0
#include "cli/limits.h"

#include <fmt/core.h>

#include "cli/graph_args.h"
#include "cli/runs.h"
#include "cli/words.h"

namespace reprise::cli {
namespace {

// "10s", "500ms", "2m", "1h"; a bare number is seconds.
std::chrono::duration<double> parse_duration(const std::string& text) {
  const auto [number, unit] = number_and_unit(text).value_or(NumberAndUnit{0, "?"});
  const double factor = unit.empty() || unit == "s" ? 1
                        : unit == "ms"              ? 1e-3
                        : unit == "m"               ? 60
                        : unit == "h"               ? 3600
                                                    : 0;
  if (factor == 0 || number > 1e9) {
    throw InputError(
        fmt::format("time limit {}: want a duration such as 10s, 500ms or 2m", in_quotes(text)));
  }
  return std::chrono::duration<double>(number * factor);
}

// "1%" or "0.01".
double parse_gap(const std::string& text) {
  const auto [number, unit] = number_and_unit(text).value_or(NumberAndUnit{0, "?"});
  if (!(unit.empty() || unit == "%") || number > 1e9) {
    throw InputError(fmt::format("gap {}: want a share such as 1% or 0.01", in_quotes(text)));
  }
  return unit == "%" ? number / 100 : number;
}

// CLI11 would take -1 for the largest unsigned number, 010 for eight, and cut what is too long.
std::string decimal(const std::string& text) {
  const bool digits = text.find_first_not_of("0123456789") == text.npos;
  const bool fits = !text.empty() && text.size() <= 18 && (text[0] != '0' || text.size() == 1);
  return digits && fits ? "" : in_quotes(text) + " is not a whole number from 0 to 10^18 - 1";
}

Technique find_technique(const std::string& name) {
  std::vector<std::string_view> names;
  for (const TechniqueWords& known : kTechniques) {
    if (known.name == name) return known.technique;
    names.push_back(known.name);
  }
  throw InputError(
      fmt::format("unknown technique {}{}", in_quotes(name), did_you_mean(name, names)));
}

}  // namespace

void LimitArgs::add_to(CLI::App& verb, const std::string& of_what, const std::string& threads_do) {
  add_seedless_to(verb, of_what, threads_do);
  verb.add_option("--seed", seed, "For solvers that draw lots")->check(decimal);
}

void LimitArgs::add_seedless_to(CLI::App& verb, const std::string& of_what,
                                const std::string& threads_do) {
  verb.add_option("--time-limit", time_limit,
                  fmt::format("Such as 10s, 500ms, 2m (default 10s){}", of_what))
      ->check(not_empty);
  verb.add_option("--iterations", iterations, fmt::format("Stop after this many{}", of_what))
      ->check(decimal)
      ->check([](const std::string& text) { return text == "0" ? "want at least one" : ""; });
  verb.add_option("--gap", gap, "Stop once cost is proven this near the best, such as 1%")
      ->check(not_empty);
  verb.add_option("--without", without, "Leave out a technique of auto's, such as drop")
      ->expected(1)
      ->take_all();
  verb.add_option("--threads", threads, fmt::format("{}, 1 to 1024", threads_do))
      ->check(CLI::Range(1, 1024).description(""));
}

Limits LimitArgs::limits() const {
  Limits limits;
  if (!time_limit.empty()) limits.time = parse_duration(time_limit);
  if (iterations > 0) limits.iterations = iterations;
  if (!limits.time && !limits.iterations) limits.time = std::chrono::seconds(10);
  if (!gap.empty()) limits.gap = parse_gap(gap);
  limits.seed = seed;
  limits.threads = threads;
  for (const std::string& name : without) limits.techniques.leave_out(find_technique(name));
  return limits;
}

std::vector<std::uint64_t> parse_seeds(const std::string& text) {
  std::vector<std::uint64_t> seeds;
  for (const std::string& seed : split_list(text, "seeds")) {
    if (const std::string complaint = decimal(seed); !complaint.empty()) {
      throw InputError("seeds: " + complaint);
    }
    seeds.push_back(std::stoull(seed));
  }
  return seeds;
}

std::string left_out(const Techniques& techniques) {
  std::string names;
  for (const TechniqueWords& known : kTechniques) {
    if (techniques.has(known.technique)) continue;
    names += (names.empty() ? "" : ",") + std::string(known.name);
  }
  return names;
}

}  // namespace reprise::cli
