// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/solvers/solver.h"
#include "tests/core/graphs.h"
#include "tests/oracle/exhaustive.h"

namespace reprise {
namespace {

Outcome run(std::string_view solver, const Graph& graph, std::optional<std::int64_t> budget) {
  Budget bytes;
  if (budget) bytes.bytes = Bytes{*budget};
  Limits limits;
  limits.iterations = 20'000;  // of auto, which else goes on while there is hope
  return solve(find_solver(solver), {graph, bytes}, limits);
}

TEST(StoreAll, IsTheBaseRun) {
  const Graph graph = unit_chain(4);
  const Outcome outcome = run("store-all", graph, 6);  // 4 values, the gradient, the next: 6
  EXPECT_EQ(outcome.status, Status::optimal);
  EXPECT_EQ(outcome.plan, base_run(graph));
  EXPECT_EQ(outcome.cost, Cost{9});
  EXPECT_EQ(run("store-all", graph, 5).status, Status::limit);
  EXPECT_EQ(run("store-all", graph, 5).smallest_peak, Bytes{6});
  EXPECT_EQ(run("store-all", graph, 2).status, Status::infeasible);
}

// Checkmate's closed form for CHECKPOINT_LAST_NODE: 2N+1 + N(N+1)/2 at budget 3.
TEST(StoreLast, CostsWhatThePaperSaysOnUnitChains) {
  for (const std::int64_t n : {2, 4, 8, 16, 32}) {
    const Outcome outcome = run("store-last", unit_chain(static_cast<std::size_t>(n)), 3);
    ASSERT_TRUE(outcome.plan) << n;
    EXPECT_EQ(outcome.peak, Bytes{3});
    EXPECT_EQ(outcome.cost, Cost{2 * n + 1 + n * (n + 1) / 2}) << n;
  }
}

TEST(StoreLast, StopsAtItsLimits) {
  const Graph graph = unit_chain(200);
  Limits limits;
  limits.memory = Bytes{64 * 300};  // 300 computes
  const Problem problem{graph, Budget{Bytes{3}}};
  const Outcome short_of_memory = solve(find_solver("store-last"), problem, limits);
  EXPECT_EQ(short_of_memory.status, Status::limit);
  EXPECT_TRUE(short_of_memory.stopped && short_of_memory.too_large);
  EXPECT_EQ(short_of_memory.smallest_peak, std::nullopt);

  const std::atomic<bool> stop{true};
  Limits interrupted;
  interrupted.stop = &stop;
  const Outcome out_of_time = solve(find_solver("store-last"), problem, interrupted);
  EXPECT_TRUE(out_of_time.stopped && !out_of_time.too_large);
}

TEST(StoreCutPoints, KeepsTheJoinsAndComputesTheBlocksAgain) {
  const Graph graph = residual_net(4);  // stem, 4 × (a, b, add), loss, 13 backward: 27 ops
  const Outcome outcome = run("store-cut-points", graph, std::nullopt);
  ASSERT_TRUE(outcome.plan);
  // a and b of each block again: 27 + 8. Peak, in the last block: stem and 3 adds, its a and b, two
  // gradients; plain: 13 values and two gradients.
  EXPECT_EQ(outcome.cost, Cost{35});
  EXPECT_EQ(simulate(graph, base_run(graph)).peak, Bytes{15});
  EXPECT_EQ(outcome.peak, Bytes{8});
}

TEST(Auto, IsTheBestOfAll) {
  const Graph graph = residual_net(4);
  EXPECT_EQ(run("auto", graph, 15).cost, Cost{27});
  const Outcome best = run("auto", graph, 9);
  const Outcome smallest = run("auto", graph, std::nullopt);
  for (const Solver& solver : solvers()) {
    if (!solver.in_auto) continue;
    const Outcome other = run(solver.name, graph, 9);
    if (other.plan) {
      EXPECT_LE(best.cost, other.cost) << solver.name;
    }
    EXPECT_LE(smallest.peak, run(solver.name, graph, std::nullopt).peak) << solver.name;
  }
}

TEST(Auto, StartsFromAPlan) {
  const Graph graph = unit_chain(4);
  const auto best = oracle::cheapest_plan(graph, Bytes{4});
  const Outcome outcome =
      solve(find_solver("auto"), {graph, Budget{Bytes{4}}, Objective::time, &best->plan}, Limits{});
  EXPECT_EQ(outcome.cost, Cost{11});
}

// store-last would run f0 so often that its cost passes 64 bits; the others' plans still count.
TEST(Auto, GetsOverAPlanThatCostsTooMuch) {
  GraphBuilder build("dear");
  std::vector<ValueId> values;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "f" + std::to_string(i);
    auto op = build.op(name);
    op.cost(Cost{i == 0 ? std::int64_t{1} << 61 : 1}).phase(Phase::forward);
    if (i > 0) op.reads({values.back()});
    values.push_back(op.makes(name, Bytes{1}));
  }
  ValueId last = build.op("loss").phase(Phase::loss).reads({values.back()}).makes("l", Bytes{1});
  for (int i = 8; i-- > 0;) {
    const std::string name = "b" + std::to_string(i);
    auto op = build.op(name);
    op.phase(Phase::backward).reads({values[static_cast<std::size_t>(i)], last});
    last = op.makes(name, Bytes{1});
  }
  const Graph graph = build.done();
  EXPECT_TRUE(run("auto", graph, std::nullopt).plan);
  EXPECT_EQ(run("store-last", graph, std::nullopt).status, Status::limit);
}

TEST(Solve, SaysWhyASolverCannot) {
  GraphBuilder build("net");
  build.op("a").makes("a", Bytes{1});
  const Graph graph = build.done();
  try {
    run("store-last", graph, 1);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "solver 'store-last' needs phases: which ops are forward, which backward (use auto, "
        "or see reprise solvers for what each supports)");
  }
  EXPECT_THROW(find_solver("store"), InputError);
}

TEST(Solve, CallsAWrongPlanOfASolversOurBug) {
  const Graph graph = unit_chain(2);
  const auto any = [](const Problem&) { return std::string(); };
  const auto run_too_early = [](const Problem&, const Limits&) {
    Findings found;
    found.plan = Plan{{Step::compute(OpId{1})}};
    return found;
  };
  const Solver wrong{"wrong", "", "", any, run_too_early};
  EXPECT_THROW(solve(wrong, {graph, Budget{Bytes{3}}}, Limits{}), std::logic_error);
  const Plan no_plan;
  const Problem bad_start{graph, Budget{Bytes{3}}, Objective::time, &no_plan};
  EXPECT_THROW(solve(find_solver("auto"), bad_start, Limits{}), InputError);
}

}  // namespace
}  // namespace reprise
