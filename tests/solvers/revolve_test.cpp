// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/revolve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reprise/core/checker.h"
#include "reprise/core/simulator.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

// The fewest evaluations by the recurrence itself: advance to the next snapshot, reverse what is
// after it with one snapshot fewer, then what is before it.
std::vector<std::vector<std::int64_t>> by_recurrence(std::size_t most_steps, std::size_t most) {
  std::vector<std::vector<std::int64_t>> table(most_steps + 1,
                                               std::vector<std::int64_t>(most + 1, 0));
  for (std::size_t steps = 2; steps <= most_steps; ++steps) {
    table[steps][1] = static_cast<std::int64_t>(steps * (steps - 1) / 2);
    for (std::size_t s = 2; s <= most; ++s) {
      table[steps][s] = table[steps][1];
      for (std::size_t next = 1; next < steps; ++next) {
        table[steps][s] =
            std::min(table[steps][s],
                     static_cast<std::int64_t>(next) + table[steps - next][s - 1] + table[next][s]);
      }
    }
  }
  return table;
}

TEST(Revolve, FormulaIsTheRecurrence) {
  const auto table = by_recurrence(80, 12);
  for (std::size_t steps = 1; steps <= 80; ++steps) {
    for (std::size_t s = 1; s <= 12; ++s) {
      EXPECT_EQ(
          binomial_evaluations(static_cast<std::int64_t>(steps), static_cast<std::int64_t>(s)),
          table[steps][s])
          << steps << " steps, " << s << " snapshots";
    }
  }
}

std::int64_t forward_runs(const Graph& graph, const Plan& plan) {
  std::int64_t runs = 0;
  for (const Step step : plan.steps) {
    if (step.kind() == StepKind::compute && graph.phase(step.op()) == Phase::forward) ++runs;
  }
  return runs;
}

// A chain of n forward ops has n + 1 steps, the loss being the last; the chain's begin is the first
// of the snapshots. Beside them there are at most a value, the one made from it, and a gradient.
TEST(Revolve, RunsForwardOpsAsOftenAsTheFormulaSays) {
  for (std::int64_t n = 1; n <= 60; ++n) {
    const Graph graph = unit_chain(static_cast<std::size_t>(n));
    for (std::int64_t snapshots = 0; snapshots <= 10; ++snapshots) {
      const Plan plan = revolve_plan(graph, static_cast<std::size_t>(snapshots));
      const Verdict verdict = check(graph, plan);
      ASSERT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
      EXPECT_EQ(forward_runs(graph, plan), binomial_evaluations(n + 1, snapshots + 1))
          << n << " ops, " << snapshots << " snapshots";
      EXPECT_LE(verdict.peak, Bytes{snapshots + 3});
    }
  }
}

// Checkmate's optimum for 16 unit ops: budget 3 costs 153, 4 67, 5 53, 6 47, and 7 44.
TEST(Revolve, ReachesTheOptimumOnUnitChains) {
  const Graph graph = unit_chain(16);
  const auto cost = [&](std::int64_t budget) {
    return solve(find_solver("revolve"), {graph, Budget{Bytes{budget}}}, Limits{}).cost;
  };
  EXPECT_EQ(cost(3), Cost{153});
  EXPECT_EQ(cost(4), Cost{67});
  EXPECT_EQ(cost(5), Cost{53});
  EXPECT_EQ(cost(6), Cost{47});
  EXPECT_EQ(cost(7), Cost{44});
  EXPECT_EQ(solve(find_solver("revolve"), {graph, Budget{}}, Limits{}).peak, Bytes{3});
}

// s → a, b → join of one step after another; the loss and one backward op a forward op.
Graph diamonds(int count) {
  GraphBuilder build("diamonds");
  std::vector<ValueId> made;
  const auto op = [&](const std::string& name, std::initializer_list<ValueId> inputs) {
    auto added = build.op(name);
    added.cost(Cost{1}).phase(Phase::forward).reads(inputs);
    made.push_back(added.makes(name, Bytes{1}));
    return made.back();
  };
  ValueId last = op("s", {});
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    const ValueId a = op("a" + number, {last});
    const ValueId b = op("b" + number, {last});
    last = op("join" + number, {a, b});
  }
  last = build.op("loss").cost(Cost{1}).phase(Phase::loss).reads({last}).makes("loss", Bytes{1});
  for (std::size_t i = made.size(); i-- > 0;) {
    auto back = build.op("g" + std::to_string(i));
    last = back.cost(Cost{1})
               .phase(Phase::backward)
               .reads({made[i], last})
               .makes("g" + std::to_string(i), Bytes{1});
  }
  return build.done();
}

TEST(Revolve, RunsOnTheChainOfCutPoints) {
  const Graph graph = diamonds(20);
  Cost last{1'000'000};
  for (const std::size_t snapshots : {0, 1, 2, 4, 8, 20}) {
    const Plan plan = revolve_plan(graph, snapshots);
    const Verdict verdict = check(graph, plan);
    ASSERT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
    // Snapshots, a stretch of three with where it begins, two gradients.
    EXPECT_LE(verdict.peak, Bytes{static_cast<std::int64_t>(snapshots) + 6});
    EXPECT_LT(verdict.cost, last);
    last = verdict.cost;
  }
}

TEST(Revolve, IsRightForAnyNumberOfSnapshotsOnAnyGraph) {
  oracle::Random random(41);
  int seen = 0;
  for (int i = 0; i < 2'000; ++i) {
    const Graph graph = oracle::random_graph(random, {2, 9, 12});
    if (!graph.has_phases()) continue;
    ++seen;
    for (const std::size_t snapshots : {0, 1, 2, 5}) {
      const Verdict verdict = check(graph, revolve_plan(graph, snapshots));
      ASSERT_FALSE(verdict.broken) << i << ": " << describe(graph, *verdict.broken);
    }
  }
  EXPECT_GT(seen, 500);
}

TEST(Revolve, NamesTheOpThatIsNoChain) {
  GraphBuilder build("net");
  const auto forward = [&](const char* name, std::initializer_list<ValueId> inputs) {
    auto op = build.op(name);
    op.phase(Phase::forward).reads(inputs);
    return op.makes(name, Bytes{1}).id();
  };
  const ValueId a = forward("a", {});
  const ValueId b = forward("b", {a});
  const ValueId add = forward("add_3", {a, b});
  const ValueId out = build.op("loss").phase(Phase::loss).reads({add, a, b}).makes("l", Bytes{1});
  build.op("back").phase(Phase::backward).reads({out}).makes("g", Bytes{1});
  EXPECT_EQ(revolve_supports(build.done()), "");  // a and add_3 part it

  GraphBuilder two("two");
  const ValueId x = two.op("x").phase(Phase::forward).makes("x", Bytes{1});
  const ValueId y = two.op("y").phase(Phase::forward).reads({x}).makes("y", Bytes{1});
  const ValueId z = two.op("z").phase(Phase::forward).reads({x}).makes("z", Bytes{1});
  const ValueId w = two.op("w").phase(Phase::forward).reads({y, z}).makes("w", Bytes{1});
  const ValueId v = two.op("v").phase(Phase::forward).reads({z}).makes("v", Bytes{1});
  two.op("loss").phase(Phase::loss).reads({w, v}).makes("loss", Bytes{1});
  EXPECT_EQ(revolve_supports(two.done()),
            "needs a chain: 'w' has 2 inputs, and no op parts the forward graph");
}

TEST(Revolve, EndsWithTheBestSoFarAtItsLimits) {
  const Graph graph = unit_chain(300);
  Limits limits;
  limits.memory = Bytes{64 * 2'000};  // 2,000 computes
  const Outcome outcome = solve(find_solver("revolve"), {graph, Budget{}}, limits);
  ASSERT_TRUE(outcome.plan);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_LE(outcome.plan->steps.size(), 4'000U);
}

}  // namespace
}  // namespace reprise
