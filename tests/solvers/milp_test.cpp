// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/milp/milp.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "tests/solvers/needs_highs.h"

namespace reprise {
namespace {

// min x + 2y where x + y ≥ 1.5, both within [0, 1].
SparseModel small_model(bool integral) {
  SparseModel model;
  const auto x = model.add_column(1, 0, 1, integral);
  const auto y = model.add_column(2, 0, 1, integral);
  model.begin_row(1.5, kNoBound);
  model.add(x, 1);
  model.add(y, 1);
  return model;
}

TEST(DualBound, HoldsForAnyDuals) {
  const SparseModel model = small_model(false);
  const auto bound = [&](double dual) { return dual_bound(model, std::array{dual}); };
  // At 2: 2·1.5 + min (1 − 2)x + min (2 − 2)y = 3 − 1 = 2, the optimum (x = 1, y = 0.5).
  EXPECT_NEAR(bound(2), 2, 1e-6);
  EXPECT_LE(bound(2), 2);
  EXPECT_NEAR(bound(1), 1.5, 1e-6);
  EXPECT_NEAR(bound(10), 15 - 9 - 8, 1e-6);
  EXPECT_NEAR(bound(-1), 0, 1e-6);  // a sign that an open row has not: as if 0
  EXPECT_NEAR(bound(std::numeric_limits<double>::quiet_NaN()), 0, 1e-6);
}

TEST(Milp, SolvesAModelAndItsRelaxation) {
  SKIP_WITHOUT_HIGHS();
  const MilpAnswer whole = solve_milp(small_model(true), {});
  EXPECT_EQ(whole.status, MilpAnswer::Status::optimal);
  EXPECT_EQ(whole.values, (std::vector<double>{1, 1}));
  EXPECT_NEAR(*whole.bound, 3, 1e-6);

  MilpQuery relaxed;
  relaxed.relaxed = true;
  const MilpAnswer part = solve_milp(small_model(true), relaxed);
  EXPECT_EQ(part.status, MilpAnswer::Status::optimal);
  EXPECT_NEAR(part.values.at(1), 0.5, 1e-6);
  EXPECT_NEAR(dual_bound(small_model(true), part.row_duals), 2, 1e-6);
}

TEST(Milp, SaysThatAModelHasNoPoint) {
  SKIP_WITHOUT_HIGHS();
  SparseModel model = small_model(true);
  model.row_lower[0] = 3;
  const MilpAnswer answer = solve_milp(model, {});
  EXPECT_EQ(answer.status, MilpAnswer::Status::infeasible);
  EXPECT_TRUE(answer.values.empty());
  EXPECT_EQ(answer.bound, std::nullopt);
}

}  // namespace
}  // namespace reprise
