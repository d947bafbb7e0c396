// SPDX-License-Identifier: Apache-2.0
// `auto` against the exhaustive optimum. The suite that begins with Long is for `make test-all`.
#include "reprise/solvers/auto.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "reprise/core/simulator.h"
#include "reprise/formats/files.h"
#include "reprise/formats/graph_formats.h"
#include "reprise/solvers/in_parallel.h"
#include "tests/core/graphs.h"
#include "tests/oracle/exhaustive.h"
#include "tests/oracle/random_graph.h"
#include "tests/shared_data.h"

namespace reprise {
namespace {

Limits iterations(std::int64_t count) {
  Limits limits;
  limits.iterations = count;
  return limits;
}

struct Tally {
  int asked = 0;
  int optimal = 0;
};

// Asks `auto` at budgets from the smallest to the plain peak. It never beats the optimum, and its
// bound never passes it.
Tally expect_honest(const Graph& graph, std::int64_t moves) {
  Tally tally;
  const Bytes least = oracle::smallest_peak(graph);
  const Bytes half{(least + base_peak(graph)).count() / 2};
  for (const Bytes budget : {least - Bytes{1}, least, least + Bytes{2}, half}) {
    SCOPED_TRACE(testing::Message() << budget.count() << " bytes");
    const auto best = oracle::cheapest_plan(graph, budget);
    const Outcome outcome = solve(find_solver("auto"), {graph, Budget{budget}}, iterations(moves));
    if (!best) {
      EXPECT_FALSE(outcome.plan);
      continue;
    }
    ++tally.asked;
    EXPECT_NE(outcome.status, Status::infeasible);
    if (outcome.lower_bound) {
      EXPECT_LE(*outcome.lower_bound, best->cost);
    }
    if (!outcome.plan) continue;
    EXPECT_GE(outcome.cost, best->cost);
    tally.optimal += outcome.cost == best->cost ? 1 : 0;
    if (outcome.status == Status::optimal) {
      EXPECT_EQ(outcome.cost, best->cost);
    }
  }
  return tally;
}

// On random graphs of seven ops or more, at least `share` of its plans have the optimum.
void expect_near_optimum(std::uint64_t seed, std::size_t count, std::int64_t moves, double share) {
  oracle::Random random(seed);
  std::vector<Graph> graphs;
  std::map<std::string_view, std::size_t> graphs_with;
  for (std::size_t i = 0; i < count; ++i) {
    graphs.push_back(oracle::random_graph(random, {7, 9, 9}));
    for (const oracle::Feature& feature : oracle::kFeatures) {
      graphs_with[feature.name] += feature.in(graphs.back()) ? 1 : 0;
    }
  }
  for (const oracle::Feature& feature : oracle::kFeatures) {
    EXPECT_GE(graphs_with[feature.name], count / 5) << feature.name;
  }

  std::vector<Tally> tallies(count);
  in_parallel(count, static_cast<int>(std::thread::hardware_concurrency()), [&](std::size_t i) {
    SCOPED_TRACE(testing::Message() << "graph " << i);
    tallies[i] = expect_honest(graphs[i], moves);
  });
  Tally all;
  for (const Tally& tally : tallies) {
    all.asked += tally.asked;
    all.optimal += tally.optimal;
  }
  std::cout << all.optimal << " of " << all.asked << " are optimal\n";
  EXPECT_GE(all.optimal, share * all.asked);
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

// Where no start plan fits, it walks down to the budget before it looks for a cheap plan inside it.
TEST(Auto, FitsBudgetsThatNoStartPlanFits) {
  const Graph graph = residual_net(40);
  const Budget budget{Bytes{base_peak(graph).count() * 15 / 100}};
  Limits limits = iterations(30'000);
  for (const Technique technique :
       {Technique::cuts, Technique::light, Technique::blocks, Technique::published}) {
    limits.techniques.leave_out(technique);
  }
  const Outcome outcome = solve(find_solver("auto"), {graph, budget}, limits);
  ASSERT_TRUE(outcome.plan);
  EXPECT_LT(outcome.cost, graph.base_cost() + graph.base_cost());
}

// Each cell reads the two before it, so that nothing parts the graph; values get smaller on the
// way. A backward op for each forward op, which reads its value and the gradient before it.
Graph cell_net(int cells) {
  GraphBuilder build("cells");
  std::vector<std::pair<ValueId, Bytes>> made;
  const auto forward = [&](std::initializer_list<ValueId> inputs, Bytes bytes) {
    const std::string name = "f" + std::to_string(made.size());
    auto op = build.op(name);
    op.cost(Cost{10}).phase(Phase::forward).reads(inputs);
    made.emplace_back(op.makes(name, bytes), bytes);
    return made.back().first;
  };
  ValueId before = forward({}, Bytes{90});
  ValueId last = forward({before}, Bytes{90});
  for (int i = 0; i < cells; ++i) {
    const Bytes bytes{90 >> (3 * i / cells)};
    const ValueId left = forward({before}, bytes);
    const ValueId right = forward({last}, bytes);
    before = last;
    last = forward({left, right}, bytes);
  }
  auto loss = build.op("loss");
  loss.cost(Cost{1}).phase(Phase::loss).reads({before, last});
  ValueId gradient = loss.makes("loss", Bytes{1});
  for (std::size_t i = made.size(); i-- > 0;) {
    const std::string name = "g" + std::to_string(i);
    auto op = build.op(name);
    op.cost(Cost{20}).phase(Phase::backward).reads({made[i].first, gradient});
    gradient = op.makes(name, made[i].second);
  }
  return build.done();
}

// Five values of 90 bytes. Plans that run nearly everything again have that peak, too, at 17 times
// the plain cost: cheap ones have to come down to it.
TEST(Auto, FindsTheSmallestPeakAtASmallCost) {
  const Graph graph = cell_net(60);
  const Outcome outcome = solve(find_solver("auto"), {graph, Budget{}}, iterations(20'000));
  ASSERT_TRUE(outcome.plan);
  EXPECT_LE(outcome.peak, Bytes{450});
  EXPECT_LE(outcome.cost, graph.base_cost() * 3);
}

// Of ResNet-50, store-last has the smallest peak, at 15 times the plain cost: cheap plans are found
// by going down to its peak.
void expect_cheap_from_the_smallest_peak(const std::vector<std::int64_t>& percents) {
  const Graph graph = read_graph(read_text(shared_data("nodelink/resnet50_b256_v100.json")));
  const Outcome dear = solve(find_solver("store-last"), {graph, Budget{}}, {});
  ASSERT_GT(dear.cost, graph.base_cost() * 10);
  for (const std::int64_t percent : percents) {
    const Budget budget{Bytes{dear.peak.count() / 100 * percent}};
    const Outcome outcome = solve(find_solver("auto"), {graph, budget}, iterations(2'000));
    ASSERT_TRUE(outcome.plan);
    EXPECT_LE(outcome.cost, graph.base_cost() * 2) << percent;
  }
}

TEST(Auto, IsCheapWhereOnlyADearPlanFitsAtFirst) {
  SKIP_WITHOUT_SHARED_DATA();
  expect_cheap_from_the_smallest_peak({101});
}

TEST(LongAuto, IsCheapWhereOnlyADearPlanFitsAtFirst) {
  SKIP_WITHOUT_SHARED_DATA();
  expect_cheap_from_the_smallest_peak({101, 102, 103, 104, 105});
}

TEST(Auto, FindsTheOptimumOfNearlyAllTinyGraphs) { expect_near_optimum(50, 100, 20'000, 0.98); }

TEST(LongAuto, FindsTheOptimumOfNearlyAllOfTenThousandTinyGraphs) {
  expect_near_optimum(51, 10'000, 200'000, 0.999);
}

}  // namespace
}  // namespace reprise
