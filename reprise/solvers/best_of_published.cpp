// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/best_of_published.h"

#include <vector>

#include "reprise/solvers/candidates.h"

namespace reprise {

Findings best_of_published(const Problem& problem, const Limits& limits) {
  const Stopwatch watch(limits);
  Problem part = problem;
  part.start = nullptr;
  Candidates candidates(problem);
  if (problem.start != nullptr) candidates.offer(*problem.start);
  std::vector<const Solver*> to_ask;
  for (const Solver& solver : solvers()) {
    if (solver.in_auto && solver.supports(part).empty()) to_ask.push_back(&solver);
  }
  for (; !to_ask.empty(); to_ask.pop_back()) {
    Limits share = limits;
    if (limits.time) share.time = *watch.left() / static_cast<double>(to_ask.size());
    candidates.take(to_ask.back()->run(part, share));
  }
  if (watch.must_stop()) candidates.stopped();  // one that is out of memory alone is no matter
  return std::move(candidates).best();
}

}  // namespace reprise
