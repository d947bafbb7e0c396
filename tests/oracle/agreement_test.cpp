// SPDX-License-Identifier: Apache-2.0
//
// `simulate` and `check` share no code: here they judge thousands of plans and have to agree.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "reprise/core/checker.h"
#include "reprise/core/simulator.h"
#include "tests/oracle/random_graph.h"
#include "tests/oracle/random_plan.h"

namespace reprise::oracle {
namespace {

constexpr int kPlans = 10'000;

// True where the plan is right; both have to say so, with the same numbers, or name the same rule.
bool judge(const Graph& graph, const Plan& plan) {
  const Verdict verdict = check(graph, plan);
  try {
    const Replay replay = simulate(graph, plan);
    EXPECT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
    EXPECT_EQ(replay.peak, verdict.peak);
    EXPECT_EQ(replay.cost, verdict.cost);
    return true;
  } catch (const PlanError& error) {
    EXPECT_EQ(verdict.broken, std::optional(error.violation)) << error.what();
    return false;
  }
}

TEST(SimulateAndCheck, AgreeOnTenThousandRandomPlans) {
  Random random(1);
  std::map<std::string_view, int> graphs_with;
  int right = 0;
  for (int i = 0; i < kPlans; ++i) {
    const Graph graph = random_graph(random);
    for (const Feature& feature : kFeatures) graphs_with[feature.name] += feature.in(graph) ? 1 : 0;
    Plan plan = random_right_plan(graph, random);
    if (random.chance(40)) plan = damaged(graph, std::move(plan), random);
    if (judge(graph, plan)) ++right;
    if (HasFailure()) FAIL() << "plan " << i;
  }
  EXPECT_GE(right, kPlans / 2);
  EXPECT_LT(right, kPlans * 9 / 10) << "too few wrong plans to tell anything";
  for (const Feature& feature : kFeatures) {
    EXPECT_GE(graphs_with[feature.name], kPlans / 5) << feature.name;
  }
}

// Every way to remove, double or swap with the next a single step of right plans.
TEST(SimulateAndCheck, AgreeOnEverySingleStepRemovedDoubledOrSwapped) {
  Random random(2);
  std::map<std::string_view, int> refused;
  std::map<std::string_view, int> passed;
  const auto try_out = [&](std::string_view how, const Graph& graph, const Plan& plan) {
    ++(judge(graph, plan) ? passed : refused)[how];
  };
  for (int i = 0; i < kPlans; ++i) {
    const Graph graph = random_graph(random, {1, 5, 6});
    const Plan right = random_right_plan(graph, random);
    ASSERT_TRUE(judge(graph, right)) << "plan " << i;
    for (std::size_t step = 0; step < right.steps.size(); ++step) {
      const auto at = static_cast<std::ptrdiff_t>(step);
      Plan plan = right;
      plan.steps.erase(plan.steps.begin() + at);
      try_out("removed", graph, plan);
      plan = right;
      plan.steps.insert(plan.steps.begin() + at, right.steps[step]);
      try_out("doubled", graph, plan);
      if (step + 1 == right.steps.size()) continue;
      plan = right;
      std::swap(plan.steps[step], plan.steps[step + 1]);
      try_out("swapped", graph, plan);
    }
    if (HasFailure()) FAIL() << "plan " << i;
  }
  for (const std::string_view how : {"removed", "doubled", "swapped"}) {
    EXPECT_GT(refused[how], 0) << how;
    EXPECT_GT(passed[how], 0) << how;
  }
}

}  // namespace
}  // namespace reprise::oracle
