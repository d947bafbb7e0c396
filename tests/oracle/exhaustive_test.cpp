// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/exhaustive.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reprise/core/checker.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random_graph.h"
#include "tests/oracle/random_plan.h"

namespace reprise::oracle {
namespace {

// Checkmate's optimum for unit chains (Jain et al., MLSys'20): all 2N+1 computes at budget N+2 ...
TEST(Exhaustive, FindsThePublishedOptimumOfUnitChains) {
  const std::vector<std::pair<int, std::int64_t>> chain4{{6, 9}, {5, 10}, {4, 11}, {3, 15}};
  for (const auto& [budget, cost] : chain4) {
    const auto best = cheapest_plan(unit_chain(4), Bytes{budget});
    ASSERT_TRUE(best) << budget;
    EXPECT_EQ(best->cost, Cost{cost}) << budget;
  }
  EXPECT_FALSE(cheapest_plan(unit_chain(4), Bytes{2}));
  EXPECT_EQ(smallest_peak(unit_chain(4)), Bytes{3});
}

TEST(Exhaustive, OverwritesOnlyWhatIsFreedAtOnce) {
  GraphBuilder build("overwrite");
  const ValueId a = build.op("a").cost(Cost{1}).makes("a", Bytes{4});
  const ValueId b = build.op("b").cost(Cost{1}).reads({a}).makes("b", Bytes{4}).over(a);
  build.op("c").cost(Cost{1}).reads({a, b}).makes("c", Bytes{1}).kept();
  const Graph graph = build.done();
  // c needs a, b and itself: 4 + 4 + 1. Overwriting a would have it computed again, for nothing.
  EXPECT_EQ(smallest_peak(graph), Bytes{9});
  EXPECT_EQ(cheapest_plan(graph, Bytes{9})->cost, Cost{3});
}

// All plans of up to `length` steps, one by one, judged by `check`: slow, and above suspicion.
void each_plan(const Graph& graph, std::size_t length, Plan& plan,
               const std::function<void(const Verdict&)>& visit) {
  const Verdict verdict = check(graph, plan);
  const bool can_go_on = !verdict.broken || verdict.broken->step == plan.steps.size();
  if (!verdict.broken) visit(verdict);
  if (!can_go_on || plan.steps.size() == length) return;
  const auto go_on = [&](Step step) {
    plan.steps.push_back(step);
    each_plan(graph, length, plan, visit);
    plan.steps.pop_back();
  };
  for (const OpId op : graph.ops()) go_on(Step::compute(op));
  for (const ValueId value : graph.values()) go_on(Step::free(value));
}

TEST(Exhaustive, EqualsEveryPlanOfUpToSevenStepsTriedOneByOne) {
  constexpr std::size_t kLength = 7;
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    const Graph graph = random_graph(random, {1, 3, 3});
    const Bytes least = smallest_peak(graph);
    Bytes least_seen = least + Bytes{1000};
    std::map<Bytes, Cost> cheapest_seen;  // by peak
    Plan plan;
    each_plan(graph, kLength, plan, [&](const Verdict& verdict) {
      least_seen = std::min(least_seen, verdict.peak);
      const auto [entry, fresh] = cheapest_seen.emplace(verdict.peak, verdict.cost);
      if (!fresh) entry->second = std::min(entry->second, verdict.cost);
    });
    // A best plan may take more than seven steps; what is seen is never better, and mostly equal.
    EXPECT_GE(least_seen, least);
    for (const auto& [peak, cost] : cheapest_seen) {
      const auto best = cheapest_plan(graph, peak);
      ASSERT_TRUE(best);
      EXPECT_LE(best->cost, cost);
      if (best->plan.steps.size() <= kLength) {
        Cost seen = cost;
        for (const auto& [other, its_cost] : cheapest_seen) {
          if (other <= peak) seen = std::min(seen, its_cost);
        }
        EXPECT_EQ(best->cost, seen);
      }
    }
    if (HasFailure()) FAIL() << "graph " << i;
  }
}

TEST(Exhaustive, ItsPlansAreRightAndKeepTheBudget) {
  Random random(4);
  for (int i = 0; i < 300; ++i) {
    const Graph graph = random_graph(random, {2, 6, 7});
    const Bytes least = smallest_peak(graph);
    EXPECT_FALSE(cheapest_plan(graph, least - Bytes{1}));
    const Plan random_plan = random_right_plan(graph, random);
    const Verdict any = check(graph, random_plan);
    EXPECT_GE(any.peak, least);
    for (const Bytes budget : {least, least + Bytes{3}, any.peak}) {
      const auto best = cheapest_plan(graph, budget);
      ASSERT_TRUE(best);
      const Verdict verdict = check(graph, best->plan);
      ASSERT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
      EXPECT_LE(verdict.peak, budget);
      EXPECT_EQ(verdict.cost, best->cost);
      if (budget == any.peak) {
        EXPECT_LE(best->cost, any.cost);
      }
    }
    if (HasFailure()) FAIL() << "graph " << i;
  }
}

}  // namespace
}  // namespace reprise::oracle
