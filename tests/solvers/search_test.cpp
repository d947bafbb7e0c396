// SPDX-License-Identifier: Apache-2.0
// What the search is made of: a peak tree, a sequence under change, moves, walks.

#include "reprise/solvers/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/solvers/dice.h"
#include "reprise/solvers/search/cut_plans.h"
#include "reprise/solvers/search/evicting_plans.h"
#include "reprise/solvers/search/light_order.h"
#include "reprise/solvers/search/moves.h"
#include "reprise/solvers/search/peak_tree.h"
#include "reprise/solvers/search/sequence.h"
#include "reprise/solvers/search/shorten.h"
#include "reprise/solvers/search/walk.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random_graph.h"
#include "tests/oracle/random_plan.h"

namespace reprise {
namespace {

TEST(PeakTree, AgreesWithAPlainArray) {
  oracle::Random random(1);
  for (const std::size_t slots : {1, 2, 3, 7, 8, 30, 100}) {
    PeakTree tree(slots);
    std::vector<std::int64_t> bytes(slots, 0);
    std::vector<bool> counts(slots, false);
    for (int i = 0; i < 500; ++i) {
      const std::uint32_t slot = random.below(slots);
      if (random.chance(30)) {
        counts[slot] ? tree.leave_out(slot) : tree.count_in(slot);
        counts[slot] = !counts[slot];
      } else {
        const auto end =
            static_cast<std::uint32_t>(random.between(slot, static_cast<std::int64_t>(slots)));
        const std::int64_t amount = random.between(-9, 9);
        tree.add(slot, end, amount);
        for (std::uint32_t k = slot; k < end; ++k) bytes[k] += amount;
      }
      std::size_t most = slots;
      for (std::size_t k = 0; k < slots; ++k) {
        if (!counts[k]) continue;
        EXPECT_EQ(tree.at(static_cast<std::uint32_t>(k)), bytes[k]);
        if (most == slots || bytes[k] > bytes[most]) most = k;
      }
      if (most == slots) {
        EXPECT_LT(tree.peak(), 0);
        continue;
      }
      ASSERT_EQ(tree.peak(), bytes[most]);
      ASSERT_EQ(tree.peak_slot(), most);
    }
  }
}

// Cost and peak, as the simulator has them for the same order.
void expect_exact(const Sequence& sequence) {
  const Graph& graph = sequence.graph();
  const Replay replay = simulate(graph, with_earliest_frees(graph, sequence.order()));
  ASSERT_EQ(sequence.cost(), replay.cost.count());
  ASSERT_EQ(sequence.peak(), replay.peak.count());
}

TEST(Sequence, HoldsAnyRightPlan) {
  oracle::Random random(2);
  for (int i = 0; i < 2000; ++i) {
    const Graph graph = oracle::random_graph(random);
    const std::vector<OpId> order =
        plan_order(graph, oracle::random_right_plan(graph, random)).order;
    const Sequence sequence(graph, order);
    EXPECT_EQ(sequence.order(), order);
    expect_exact(sequence);
    if (HasFailure()) FAIL() << "graph " << i;
  }
}

TEST(Sequence, CountsOneBufferWhereALastReaderOverwrites) {
  GraphBuilder build("overwrite");
  const ValueId x = build.op("a").cost(Cost{1}).makes("x", Bytes{8});
  build.op("b").cost(Cost{1}).reads({x}).makes("y", Bytes{8}).over(x).kept();
  build.op("c").cost(Cost{1}).reads({x}).workspace(Bytes{1}).makes("z", Bytes{2}).kept();
  const Graph graph = build.done();
  const OpId a{0};
  const OpId b{1};
  const OpId c{2};
  // b reads x first: x and y are two buffers, and c needs z and its workspace beside both.
  EXPECT_EQ(Sequence(graph, std::vector{a, b, c}).peak(), 8 + 8 + 2 + 1);
  // c first: 8 + 2 + 1 while it runs; then y takes x over, beside z.
  EXPECT_EQ(Sequence(graph, std::vector{a, c, b}).peak(), 8 + 2 + 1);
}

// Thousands of moves, each priced against the simulator, half of them undone.
TEST(Moves, LeaveARightPlanWithItsExactPriceAndCanBeUndone) {
  oracle::Random random(3);
  int moved = 0;
  for (int i = 0; i < 400; ++i) {
    const Graph graph = oracle::random_graph(random, {3, 12, 16});
    Sequence sequence(graph, plan_order(graph, oracle::random_right_plan(graph, random)).order);
    Dice dice(static_cast<std::uint64_t>(i));
    Moves moves(sequence, dice, {});
    for (int k = 0; k < 60; ++k) {
      const std::vector<OpId> before = sequence.order();
      sequence.forget();
      const std::int64_t room = random.between(0, 60);
      const bool done = moves.any({room, 1.0, 1e9});
      moved += done ? 1 : 0;
      if (done) expect_exact(sequence);
      if (!done || random.chance(50)) {
        sequence.undo();
        ASSERT_EQ(sequence.order(), before);
        expect_exact(sequence);
      }
      sequence.make_room();
      if (HasFatalFailure()) FAIL() << "graph " << i << ", move " << k;
    }
  }
  EXPECT_GT(moved, 400 * 60 / 4) << "too few moves to tell anything";
}

TEST(CutPlans, AreRightAndFitUnitChainsAtEveryPossibleBudget) {
  for (const int ops : {4, 8, 16}) {
    const Graph graph = unit_chain(ops);
    const std::vector<OpId> program = program_order(graph);
    for (std::int64_t budget = 4; budget <= ops + 2; ++budget) {
      const auto plans = cut_plans(graph, program, Bytes{budget}, [] { return false; });
      EXPECT_LE(plans.front().peak, Bytes{budget}) << ops << " ops";
      for (const PlanOrder& plan : plans) {
        const PlanOrder again = plan_order(graph, plan.order);
        EXPECT_EQ(again.peak, plan.peak);
        EXPECT_EQ(again.cost, plan.cost);
      }
    }
  }
}

// 123 ops of cost 1, and 63 bytes in the plain run.
TEST(EvictingPlans, FitRoomsFarBelowThePlainPeakAtASmallCost) {
  const Graph graph = residual_net(20);
  for (const std::int64_t budget : {8, 16}) {
    const auto plans =
        evicting_plans(graph, program_order(graph), Bytes{budget}, [] { return false; });
    ASSERT_FALSE(plans.empty());
    EXPECT_LE(plans.front().peak, Bytes{budget});
    EXPECT_LE(plans.front().cost, graph.base_cost() * 3);
  }
}

// far takes 10 of 11 bytes, so that x and y are gone before both reads them. To make x again takes
// a, wide and x beside end, 1 + 8 + 1 + 1: y can't be there then. To make y beside x takes 7.
TEST(EvictingPlans, BringBackWhatHadToGoForAnotherInput) {
  GraphBuilder build("two chains");
  const ValueId a = build.op("a").cost(Cost{1}).makes("va", Bytes{1});
  const ValueId y = build.op("y").cost(Cost{1}).reads({a}).makes("vy", Bytes{4});
  const ValueId wide = build.op("wide").cost(Cost{1}).reads({a}).makes("vwide", Bytes{8});
  const ValueId x = build.op("x").cost(Cost{1}).reads({wide}).makes("vx", Bytes{1});
  const ValueId far = build.op("far").cost(Cost{9}).makes("vfar", Bytes{10});
  const ValueId end = build.op("end").cost(Cost{1}).reads({far}).makes("vend", Bytes{1});
  build.op("both").cost(Cost{1}).reads({x, y, end}).makes("vboth", Bytes{1}).kept();
  const Graph graph = build.done();
  const auto plan = evicting_plan(graph, program_order(graph), Bytes{11}, [] { return false; });
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->peak, Bytes{11});
}

TEST(EvictingPlans, AreRightOnAnyGraph) {
  oracle::Random random(9);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = oracle::random_graph(random, {7, 9, 9});
    const Bytes budget{base_peak(graph).count() / 2};
    for (const PlanOrder& plan :
         evicting_plans(graph, program_order(graph), budget, [] { return false; })) {
      EXPECT_FALSE(check(graph, with_earliest_frees(graph, plan.order)).broken) << "graph " << i;
      ++found;
    }
  }
  EXPECT_GT(found, 100);
}

// Of every value nothing is left after each op: a reads nothing, so it runs for itself, b and c.
TEST(KeepNothing, ComputesAgainForEachOp) {
  GraphBuilder build("chain");
  const ValueId a = build.op("a").cost(Cost{1}).makes("va", Bytes{4});
  const ValueId b = build.op("b").cost(Cost{1}).reads({a}).makes("vb", Bytes{4});
  build.op("c").cost(Cost{1}).reads({b}).makes("vc", Bytes{4});
  const Graph graph = build.done();
  const std::vector<OpId> program{OpId{0}, OpId{1}, OpId{2}};
  const auto plan = keep_nothing(graph, program, 6, [] { return false; });
  ASSERT_TRUE(plan);
  const std::vector<OpId> expected{OpId{0}, OpId{0}, OpId{1}, OpId{0}, OpId{1}, OpId{2}};
  EXPECT_EQ(plan->order, expected);
  EXPECT_EQ(plan->peak, Bytes{8});
  EXPECT_FALSE(keep_nothing(graph, program, 5, [] { return false; }));
}

TEST(LightOrder, RunsWhatFreesMostFirst) {
  GraphBuilder build("two branches");
  const ValueId x = build.resident("x", Bytes{1});
  const ValueId a = build.op("a").reads({x}).makes("va", Bytes{10});
  const ValueId b = build.op("b").reads({x}).makes("vb", Bytes{10});
  const ValueId c = build.op("c").reads({a}).makes("vc", Bytes{1});
  const ValueId d = build.op("d").reads({b}).makes("vd", Bytes{1});
  build.op("e").reads({c, d}).makes("ve", Bytes{1}).kept();
  const Graph graph = build.done();
  const std::vector<OpId> expected{OpId{0}, OpId{2}, OpId{1}, OpId{3}, OpId{4}};
  EXPECT_EQ(light_order(graph), expected);
}

TEST(Shortened, CostsNoMoreAndStaysInsideTheRoom) {
  oracle::Random random(5);
  int shorter = 0;
  for (int i = 0; i < 200; ++i) {
    const Graph graph = oracle::random_graph(random, {5, 12, 20});
    const auto nothing = keep_nothing(graph, program_order(graph), 1000, [] { return false; });
    if (!nothing) continue;
    const Bytes room = base_peak(graph);
    const PlanOrder plan = shortened(graph, *nothing, room, [] { return false; });
    const PlanOrder anew = plan_order(graph, plan.order);
    EXPECT_EQ(anew.cost, plan.cost);
    EXPECT_EQ(anew.peak, plan.peak);
    EXPECT_LE(plan.cost, nothing->cost);
    EXPECT_LE(plan.peak, std::max(room, nothing->peak));
    shorter += plan.order.size() < nothing->order.size() ? 1 : 0;
  }
  EXPECT_GT(shorter, 100);
}

Walk some_walk(const Graph& graph, Bytes room) {
  Walk how;
  how.room = room;
  how.byte_price = 1;
  how.hot = 1;
  how.cold = 0.1;
  how.moves = 2000;
  how.seed = graph.ops().size();
  return how;
}

TEST(Walk, NeverComesBackWithLess) {
  oracle::Random random(6);
  int better_ones = 0;
  for (int i = 0; i < 100; ++i) {
    const Graph graph = oracle::random_graph(random, {6, 12, 20});
    const PlanOrder start = plan_order(graph, program_order(graph));
    const Budget budget{Bytes{start.peak.count() * 3 / 4}};
    const Walked walked =
        walk(graph, budget, start, some_walk(graph, *budget.bytes), [] { return false; });
    EXPECT_FALSE(better(start, walked.best, budget));
    better_ones += better(walked.best, start, budget) ? 1 : 0;
    EXPECT_EQ(walked.moves, 2000);
  }
  EXPECT_GT(better_ones, 30);
}

TEST(Walk, EndsWhereItIsEnoughOrTold) {
  const Graph graph = unit_chain(8);
  const PlanOrder start = plan_order(graph, program_order(graph));
  Walk how = some_walk(graph, start.peak);
  how.enough = start.cost;
  EXPECT_EQ(walk(graph, Budget{start.peak}, start, how, [] { return false; }).moves, 0);
  how.enough.reset();
  EXPECT_EQ(walk(graph, Budget{start.peak}, start, how, [] { return true; }).moves, 0);
}

// For each of 200 backward ops the forward ops up to its own run again: some 20,000 runs.
TEST(Search, ShortensAFarTooLongPlanWhereItIsTheBestAfterARound) {
  const Graph graph = unit_chain(200);
  const Outcome outcome = solve(find_solver("store-last"), {graph, Budget{}}, {});
  const PlanOrder dear = plan_order(graph, *outcome.plan);
  ASSERT_GT(dear.order.size(), most_runs(graph));
  const Problem problem{graph, Budget{dear.peak}};
  Limits limits;
  limits.iterations = 100;
  const Stopwatch watch(limits);
  Search search(problem, limits, Bytes{3});
  search.add(plan_order(graph, program_order(graph)), watch);
  search.add(dear, watch);
  EXPECT_EQ(search.best()->cost, dear.cost);
  search.round(watch, {});
  EXPECT_EQ(search.best()->cost, dear.cost) << "no walk of a few moves gets down to it";
  search.round(watch, {});
  EXPECT_LE(search.best()->peak, dear.peak);
  EXPECT_LT(search.best()->cost, dear.cost);
}

// Checkmate's optimum of the chain of 8 at 5 bytes.
TEST(Search, FindsTheSameWithAnyNumberOfThreads) {
  const Graph graph = unit_chain(8);
  const Problem problem{graph, Budget{Bytes{5}}};
  std::vector<std::vector<OpId>> found;
  for (const int threads : {1, 3}) {
    Limits limits;
    limits.iterations = 30'000;
    limits.threads = threads;
    const Stopwatch watch(limits);
    Search search(problem, limits, Bytes{3});
    search.add(plan_order(graph, program_order(graph)), watch);
    while (search.round(watch, {})) {
    }
    EXPECT_TRUE(search.fits());
    EXPECT_EQ(search.moves(), 30'000);
    found.push_back(search.best()->order);
  }
  EXPECT_EQ(found[0], found[1]);
}

}  // namespace
}  // namespace reprise
