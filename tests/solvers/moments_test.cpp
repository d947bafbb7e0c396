// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "reprise/core/topology.h"
#include "reprise/solvers/bounds/moment.h"
#include "reprise/solvers/bounds/smallest_peak.h"
#include "tests/core/graphs.h"
#include "tests/oracle/exhaustive.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

constexpr Cost kNoCost{std::numeric_limits<std::int64_t>::max()};

const auto kNeverStop = [] { return false; };

Cost proven(const Graph& graph, Bytes budget, std::vector<OpId> ops, Cost below = kNoCost) {
  Chain chain(graph, budget, ops);
  chain.go_on(below, 20'000, false, kNeverStop);
  return chain.proven();
}

// A random op, then now and again one of its descendants.
std::vector<OpId> random_chain(const Graph& graph, oracle::Random& random) {
  std::vector<OpId> chain{OpId{random.below(graph.ops().size())}};
  while (random.chance(80)) {
    std::vector<OpId> next;
    const OpSet after = descendants(graph, chain.back());
    for (const OpId op : graph.ops()) {
      if (after[op]) next.push_back(op);
    }
    if (next.empty()) break;
    chain.push_back(next[random.below(next.size())]);
  }
  return chain;
}

TEST(BoxProgram, ItsBoundHoldsForWhateverPrices) {
  oracle::Random random(1);
  int tight = 0;
  for (int i = 0; i < 300; ++i) {
    const auto variables = static_cast<std::size_t>(random.between(1, 6));
    const auto rows = static_cast<std::size_t>(random.between(1, 5));
    BoxProgram program;
    std::vector<std::int64_t> costs;
    for (std::size_t j = 0; j < variables; ++j) {
      costs.push_back(random.between(0, 9));
      program.add_variable(costs.back());
    }
    std::vector<std::vector<std::int64_t>> factors(rows, std::vector<std::int64_t>(variables));
    std::vector<std::int64_t> at_least;
    for (auto& row : factors) {
      std::vector<BoxProgram::Term> terms;
      for (BoxProgram::Variable j = 0; j < variables; ++j) {
        row[j] = random.between(-3, 3);
        if (row[j] != 0) terms.push_back({j, row[j]});
      }
      at_least.push_back(random.between(-4, 2));
      program.add_row(terms, at_least.back());
    }
    program.close();
    BoxProgram::Fixed fixed(variables);
    for (auto& entry : fixed) {
      if (random.chance(20)) entry = random.chance(50);
    }

    std::optional<std::int64_t> least;
    for (std::uint32_t choice = 0; choice < 1U << variables; ++choice) {
      const auto is_1 = [&](std::size_t j) { return (choice >> j & 1U) != 0; };
      std::int64_t cost = 0;
      bool is_right = true;
      for (std::size_t j = 0; j < variables; ++j) {
        cost += is_1(j) ? costs[j] : 0;
        is_right = is_right && fixed[j].value_or(is_1(j)) == is_1(j);
      }
      for (std::size_t k = 0; k < rows; ++k) {
        std::int64_t sum = 0;
        for (std::size_t j = 0; j < variables; ++j) sum += is_1(j) ? factors[k][j] : 0;
        is_right = is_right && sum >= at_least[k];
      }
      if (is_right) least = std::min(least.value_or(cost), cost);
    }
    if (!least) continue;
    BoxProgram::State state = program.start();
    const Wide most = Wide{*least} << program.scale();
    for (int k = 0; k < 10; ++k) {
      for (double& price : state.prices) price = static_cast<double>(random.between(0, 50)) / 10;
      EXPECT_LE(program.bound(state, fixed).cost, most) << i;
    }
    state = program.start();
    program.improve(state, fixed, 1'000, kNeverStop);
    EXPECT_LE(program.bound(state, fixed).cost, most) << i;
    if (program.bound(state, fixed).cost > most - (Wide{1} << program.scale())) ++tight;
  }
  EXPECT_GT(tight, 100);
}

// min 3x + 2y where 2x + y >= 2: x = 1, which is 3; in part x = 1 as well, at a price of 3/2. With
// x at 0 y alone can't: no price is too high.
TEST(BoxProgram, FindsTheBestPrice) {
  BoxProgram program;
  const auto x = program.add_variable(3);
  const auto y = program.add_variable(2);
  program.add_row(std::array{BoxProgram::Term{x, 2}, BoxProgram::Term{y, 1}}, 2);
  program.close();
  BoxProgram::State state = program.start();
  program.improve(state, BoxProgram::Fixed(2), 2'000, kNeverStop);
  const BoxProgram::Bound bound = program.bound(state, BoxProgram::Fixed(2));
  EXPECT_NEAR(std::ldexp(static_cast<double>(bound.cost), -program.scale()), 3, 1e-3);
}

// f0 f1 f2 f3 loss b3 b2 b1 b0, a byte and a cost of 1 each; b_i reads f_i and the gradient before.
// Budget 4. While the loss runs, f3 and itself are there and two more: f0, f1 and f2 are needed
// later, so one of them runs again.
TEST(Chain, OfOneMomentIsTheCutAtIt) {
  const Graph graph = unit_chain(4);
  EXPECT_EQ(proven(graph, Bytes{4}, {OpId{4}}), Cost{1});
  EXPECT_EQ(proven(graph, Bytes{5}, {OpId{4}}), Cost{0});
}

// Budget 3. While b3, b2 and b1 run, their own three bytes are all there is, so nothing is kept
// over them: f0, f1 and f2 run again for b2, f0 and f1 for b1, f0 for b0. That is 6 more than 9.
TEST(Chain, OfSeveralMomentsProvesMoreThanEach) {
  const Graph graph = unit_chain(4);
  Cost best_of_one;
  std::vector<OpId> all;
  for (std::uint32_t op = 4; op < 9; ++op) {
    all.push_back(OpId{op});
    best_of_one = std::max(best_of_one, proven(graph, Bytes{3}, {OpId{op}}));
  }
  EXPECT_LT(best_of_one, Cost{6});
  EXPECT_EQ(proven(graph, Bytes{3}, all), Cost{6});
  EXPECT_EQ(oracle::cheapest_plan(graph, Bytes{3})->cost, graph.base_cost() + Cost{6});
}

TEST(Chain, IsNeverAboveTheOptimum) {
  oracle::Random random(11);
  int tight = 0;
  int paid = 0;
  for (int i = 0; i < 400; ++i) {
    const Graph graph = oracle::random_graph(random, {2, 8, 8});
    const Bytes least = oracle::smallest_peak(graph);
    for (const Bytes budget : {least, least + Bytes{2}, least + Bytes{5}}) {
      const Cost extra = oracle::cheapest_plan(graph, budget)->cost - graph.base_cost();
      const std::vector<OpId> ops = random_chain(graph, random);
      Chain chain(graph, budget, ops);
      // A few steps at a time: whenever it is asked, what it says is proven.
      const Cost below = random.chance(50) ? kNoCost : extra + Cost{random.between(0, 3)};
      for (int k = 0; k < 8; ++k) {
        chain.go_on(below, random.between(1, 1'000), random.chance(30), kNeverStop);
        ASSERT_LE(chain.proven(), extra) << "graph " << i;
      }
      if (extra > Cost{0}) ++paid;
      if (extra > Cost{0} && chain.proven() == extra) ++tight;
    }
  }
  EXPECT_GT(paid, 200);
  EXPECT_GT(tight, 20);
}

TEST(Chain, IsNeverBelowWhatAPartOfItProves) {
  oracle::Random random(12);
  for (int i = 0; i < 100; ++i) {
    const Graph graph = oracle::random_graph(random, {4, 8, 8});
    const Bytes budget = oracle::smallest_peak(graph);
    const Cost extra = oracle::cheapest_plan(graph, budget)->cost - graph.base_cost();
    const std::vector<OpId> ops = random_chain(graph, random);
    const Cost all = proven(graph, budget, ops, extra);
    for (const OpId op : ops) EXPECT_LE(proven(graph, budget, {op}, extra), all) << "graph " << i;
  }
}

TEST(Moments, FindTheChainOfAUnitChain) {
  const Graph graph = unit_chain(4);
  const auto best = oracle::cheapest_plan(graph, Bytes{3});
  Moments moments(graph, Bytes{3});
  for (int k = 0; k < 6; ++k) {
    moments.go_on(plan_order(graph, best->plan), best->cost - graph.base_cost(), OpId{4},
                  kNeverStop);
  }
  EXPECT_EQ(moments.proven(), Cost{6});
}

TEST(Moments, AreNeverAboveTheOptimum) {
  oracle::Random random(13);
  int paid = 0;
  int tight = 0;
  for (int i = 0; i < 200; ++i) {
    const Graph graph = oracle::random_graph(random, {5, 8, 8});
    const Bytes budget = oracle::smallest_peak(graph) + Bytes{random.between(0, 1)};
    const auto best = oracle::cheapest_plan(graph, budget);
    const Cost extra = best->cost - graph.base_cost();
    const Cost below = extra + Cost{random.between(0, 3)};  // the best may not be known yet
    Moments moments(graph, budget);
    const OpId first{random.below(graph.ops().size())};
    for (int k = 0; k < 3; ++k) {
      moments.go_on(plan_order(graph, best->plan), below, first, kNeverStop);
    }
    ASSERT_LE(moments.proven(), extra) << "graph " << i;
    if (extra > Cost{0}) ++paid;
    if (extra > Cost{0} && moments.proven() == extra) ++tight;
  }
  EXPECT_GT(paid, 60);
  EXPECT_GT(tight, 15);
}

}  // namespace
}  // namespace reprise
