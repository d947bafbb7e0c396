// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "reprise/solvers/solver.h"

namespace reprise {

// Keeps the best of the plans it is shown: the cheapest that fits, ties to the smaller peak; where
// the smallest peak is asked for, that one, ties to the cheaper. Further ties go to the first.
class Candidates {
 public:
  explicit Candidates(const Problem& problem) : problem_(problem) {}

  // Takes a right plan and says its peak; none where its cost is past 64 bits.
  std::optional<Bytes> offer(Plan plan);
  void reached(Bytes peak);  // a plan not shown had this peak
  void stopped() { found_.stopped = true; }
  const Findings& so_far() const { return found_; }
  Findings best() && { return std::move(found_); }

 private:
  const Problem& problem_;
  Findings found_;
  Bytes peak_;  // of the best plan
  Cost cost_;
};

// Tells a solver when its limits are reached, and passes on how far it is.
class Stopwatch {
 public:
  explicit Stopwatch(const Limits& limits)
      : limits_(limits), begin_(std::chrono::steady_clock::now()) {}

  double seconds() const;
  bool must_stop() const;  // by the time limit or from outside
  void report(std::string_view doing) const;

 private:
  const Limits& limits_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace reprise
