// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "reprise/solvers/solver.h"

namespace reprise::cli {

// When solvers stop, as the verbs that run them take it.
struct LimitArgs {
  std::string time_limit;
  std::int64_t iterations = 0;
  std::string gap;
  std::uint64_t seed = 0;
  int threads = 1;
  std::vector<std::string> without;

  // `of_what` follows the words on limits ("", " of each run"); `threads_do` is what threads do.
  void add_to(CLI::App& verb, const std::string& of_what, const std::string& threads_do);
  // The same but for --seed.
  void add_seedless_to(CLI::App& verb, const std::string& of_what, const std::string& threads_do);
  // 10 s where neither a time nor iterations are given. Throws InputError.
  Limits limits() const;
};

// The numbers of "0,1,2". Throws InputError.
std::vector<std::uint64_t> parse_seeds(const std::string& text);

// The names of those that are left out, parted by commas.
std::string left_out(const Techniques& techniques);

}  // namespace reprise::cli
