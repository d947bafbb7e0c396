// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/store_all.h"

#include "reprise/core/lifetimes.h"
#include "reprise/solvers/candidates.h"

namespace reprise {

Findings store_all(const Problem& problem, const Limits&) {
  Candidates candidates(problem);
  candidates.offer(base_run(problem.graph));
  return std::move(candidates).best();
}

}  // namespace reprise
