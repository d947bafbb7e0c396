// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/auto.h"

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
    rest.time = watch.left();
    candidates.take(solver.run(part, rest));
  }
  if (watch.must_stop()) candidates.stopped();  // one that is out of memory alone is no matter
  return std::move(candidates).best();
}

}  // namespace reprise
