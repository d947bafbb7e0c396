// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "reprise/solvers/solver.h"

namespace reprise::cli {

// When solvers stop, as the verbs that run them take it.
struct LimitArgs {
  std::string time_limit;
  std::int64_t iterations = 0;
  std::string gap;
  std::uint64_t seed = 0;
  int threads = 1;

  // `of_what` follows the words on limits ("", " of each run"); `threads_do` is what threads do.
  void add_to(CLI::App& verb, const std::string& of_what, const std::string& threads_do);
  // 10 s where neither a time nor iterations are given. Throws InputError.
  Limits limits() const;
};

}  // namespace reprise::cli
