// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "reprise/solvers/solver.h"

namespace reprise {

class Stopwatch;

// Keeps the best of the plans it is shown: the cheapest that fits, ties to the smaller peak; where
// the smallest peak is asked for, that one, ties to the cheaper. Further ties go to the first.
class Candidates {
 public:
  explicit Candidates(const Problem& problem) : problem_(problem) {}

  // Takes a right plan and says its peak; none where its cost is past 64 bits.
  std::optional<Bytes> offer(Plan plan);
  void take(Findings found);  // of another solver: its plan and the smallest peak it reached
  void stopped() { found_.stopped = true; }
  void too_large() { found_.stopped = found_.too_large = true; }
  void gave_up(const Stopwatch& watch);  // out of time, or else of memory
  const Findings& so_far() const { return found_; }
  Cost cost() const { return cost_; }  // of the best plan
  Findings best() && { return std::move(found_); }

 private:
  void reached(Bytes peak);

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
  std::optional<std::chrono::duration<double>> left() const;  // none: no time limit
  bool must_stop() const;                                     // by the time limit or from outside
  void report(std::string_view doing) const;

 private:
  const Limits& limits_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace reprise
