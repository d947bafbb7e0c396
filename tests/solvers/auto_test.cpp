// SPDX-License-Identifier: Apache-2.0
// `auto` against the exhaustive optimum. The suite that begins with Long is for `make test-all`.
#include "reprise/solvers/auto.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string_view>

#include "reprise/core/simulator.h"
#include "tests/oracle/exhaustive.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

Limits iterations(std::int64_t count) {
  Limits limits;
  limits.iterations = count;
  return limits;
}

// Asks `auto` at budgets from the smallest to the plain peak on random graphs of seven ops or more.
// It never beats the optimum, its bound never passes it, and at least `share` of its plans have it.
void expect_near_optimum(std::uint64_t seed, int graphs, double share) {
  oracle::Random random(seed);
  std::map<std::string_view, int> graphs_with;
  int asked = 0;
  int optimal = 0;
  for (int i = 0; i < graphs; ++i) {
    const Graph graph = oracle::random_graph(random, {7, 9, 9});
    for (const oracle::Feature& feature : oracle::kFeatures) {
      graphs_with[feature.name] += feature.in(graph) ? 1 : 0;
    }
    const Bytes least = oracle::smallest_peak(graph);
    const Bytes plain = base_peak(graph);
    const Bytes half{(least + plain).count() / 2};
    for (const Bytes budget : {least - Bytes{1}, least, least + Bytes{2}, half}) {
      SCOPED_TRACE(testing::Message() << "graph " << i << ", " << budget.count() << " bytes");
      const auto best = oracle::cheapest_plan(graph, budget);
      const Outcome outcome =
          solve(find_solver("auto"), {graph, Budget{budget}}, iterations(20'000));
      if (!best) {
        EXPECT_FALSE(outcome.plan);
        continue;
      }
      ++asked;
      EXPECT_NE(outcome.status, Status::infeasible);
      if (outcome.lower_bound) {
        EXPECT_LE(*outcome.lower_bound, best->cost);
      }
      if (!outcome.plan) continue;
      EXPECT_GE(outcome.cost, best->cost);
      optimal += outcome.cost == best->cost ? 1 : 0;
      if (outcome.status == Status::optimal) {
        EXPECT_EQ(outcome.cost, best->cost);
      }
    }
    if (testing::Test::HasFailure()) FAIL();
  }
  EXPECT_GE(optimal, share * asked) << optimal << " of " << asked;

  for (const oracle::Feature& feature : oracle::kFeatures) {
    EXPECT_GE(graphs_with[feature.name], graphs / 5) << feature.name;
  }
}

// A graph on which plans are many, at a budget that takes some search.
struct Hard {
  oracle::Random random{5};
  Graph graph = oracle::random_graph(random, {40, 40, 60});
  Problem problem{graph, Budget{Bytes{base_peak(graph).count() * 3 / 4}}};

  std::optional<Plan> solve_with(std::uint64_t seed, int threads) const {
    Limits limits = iterations(400);
    limits.seed = seed;
    limits.threads = threads;
    return solve(find_solver("auto"), problem, limits).plan;
  }
};

TEST(Auto, FindsTheSamePlanWithAnyNumberOfThreads) {
  const Hard hard;
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const auto plan = hard.solve_with(seed, 1);
    ASSERT_TRUE(plan);
    for (const int threads : {2, 5, 16}) EXPECT_EQ(hard.solve_with(seed, threads), plan);
  }
}

TEST(Auto, DependsOnTheSeed) {
  const Hard hard;
  int differ = 0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    differ += hard.solve_with(seed, 1) != hard.solve_with(0, 1) ? 1 : 0;
  }
  EXPECT_GT(differ, 0);
}

TEST(Auto, FindsTheOptimumOfNearlyAllTinyGraphs) { expect_near_optimum(50, 100, 0.98); }

TEST(LongAuto, FindsTheOptimumOfNearlyAllOfTenThousandTinyGraphs) {
  expect_near_optimum(51, 10'000, 0.999);
}

}  // namespace
}  // namespace reprise
