// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "reprise/solvers/milp.h"

namespace reprise {

std::string milp_unavailable() {
  return "needs HiGHS, which this build has not: .venv/bin/python -m pip install highsbox, or set "
         "HIGHS_ROOT, then build again from an empty build folder";
}

MilpAnswer solve_milp(const SparseModel&, const MilpQuery&) {
  throw std::logic_error("a model was to be solved without HiGHS");
}

}  // namespace reprise
