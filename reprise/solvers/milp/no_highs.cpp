// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "reprise/solvers/milp/milp.h"

namespace reprise {

std::string milp_unavailable() {
  return "needs HiGHS, which was not there when this was built: make .venv/ready, or set "
         "HIGHS_ROOT, and make build";
}

MilpAnswer solve_milp(const SparseModel&, const MilpQuery&) {
  throw std::logic_error("a model was to be solved without HiGHS");
}

}  // namespace reprise
