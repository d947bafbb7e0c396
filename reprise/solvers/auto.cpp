// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/auto.h"

#include <algorithm>

#include "reprise/solvers/candidates.h"

namespace reprise {

Findings best_of_all(const Problem& problem, const Limits& limits) {
  const Stopwatch watch(limits);
  Problem part = problem;
  part.start = nullptr;
  Candidates candidates(problem);
  if (problem.start != nullptr) candidates.offer(*problem.start);
  for (const Solver& solver : solvers()) {
    if (!solver.in_auto || !solver.supports(part).empty()) continue;
    Limits rest = limits;
    if (limits.time) {
      rest.time = std::max(*limits.time - std::chrono::duration<double>(watch.seconds()),
                           std::chrono::duration<double>(0));
    }
    Findings found = solver.run(part, rest);
    if (found.smallest_peak) candidates.reached(*found.smallest_peak);
    if (found.plan) candidates.offer(*std::move(found.plan));
  }
  if (watch.must_stop()) candidates.stopped();  // one that is out of memory alone is no matter
  return std::move(candidates).best();
}

}  // namespace reprise
