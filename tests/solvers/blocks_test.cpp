// SPDX-License-Identifier: Apache-2.0
// Networks as chains of blocks, and plans that are stitched from theirs.

#include "reprise/solvers/search/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/solvers/search/stitched_plans.h"
#include "reprise/solvers/solver.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

bool never_stop() { return false; }

std::vector<OpId> forward_then_backward(const std::vector<Block>& blocks) {
  std::vector<OpId> order;
  for (const Block& block : blocks) {
    order.insert(order.end(), block.forward.begin(), block.forward.end());
  }
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    order.insert(order.end(), block->backward.begin(), block->backward.end());
  }
  return order;
}

std::vector<std::size_t> kinds(const std::vector<Block>& blocks) {
  std::vector<std::size_t> kinds;
  for (const Block& block : blocks) kinds.push_back(block.kind);
  return kinds;
}

TEST(Blocks, AreTheLayersOfANetwork) {
  const Graph graph = residual_net(5);
  const std::vector<Block> blocks = find_blocks(graph, {});
  // The stem and five layers: the first hands no gradient back, the last has the loss as well.
  EXPECT_EQ(kinds(blocks), (std::vector<std::size_t>{0, 1, 2, 2, 2, 3}));
  for (std::size_t i = 1; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].forward.size(), 3) << i;
  const std::vector<Block> larger = find_blocks(graph, {6});
  EXPECT_EQ(kinds(larger), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(larger[1].forward.size(), 6);
}

TEST(Blocks, DifferWhereOneOpDoes) {
  const Graph graph = residual_net(5);
  const OpId once{2 * 3 + 1};  // in the third layer, after the stem
  const Graph pinned = graph.pinned({}, std::vector{once});
  EXPECT_EQ(kinds(find_blocks(pinned, {})), (std::vector<std::size_t>{0, 1, 2, 3, 2, 4}));
}

TEST(Blocks, AreTakenTogetherWhereThereAreMany) {
  const std::vector<Block> blocks = find_blocks(residual_net(20), {1, 4});
  EXPECT_LE(blocks.size(), 4);
  EXPECT_GE(blocks.size(), 3);
}

TEST(Blocks, HaveEveryOpOnceInARightOrder) {
  oracle::Random random(1);
  int chains = 0;
  for (int i = 0; i < 2000; ++i) {
    const Graph graph = oracle::random_graph(random, {2, 24, 40});
    const std::vector<Block> blocks = find_blocks(graph, {});
    if (blocks.empty()) continue;
    ++chains;
    std::vector<OpId> order = forward_then_backward(blocks);
    EXPECT_FALSE(check(graph, with_earliest_frees(graph, order)).broken) << i;
    std::sort(order.begin(), order.end());
    EXPECT_EQ(std::unique(order.begin(), order.end()), order.end()) << i;
  }
  EXPECT_GT(chains, 500);
}

// x, from before, is resident; what the next block reads is read in between, which hands back a
// gradient; and so is what it hands back itself kept.
TEST(BlockGraph, StandsByItself) {
  const Graph graph = residual_net(3);
  const std::vector<Block> blocks = find_blocks(graph, {});
  const Graph block = block_graph(graph, blocks[2], Bytes{7});
  ASSERT_EQ(block.ops().size(), 3 + 1 + blocks[2].backward.size());
  const OpId between{3};
  EXPECT_EQ(block.workspace(between), Bytes{7});
  EXPECT_FALSE(block.recomputable(between));
  EXPECT_EQ(block.inputs(between).size(), 1);
  EXPECT_EQ(block.producer(block.inputs(between)[0]), OpId{2});
  EXPECT_EQ(block.base_cost(), Cost{static_cast<std::int64_t>(block.ops().size()) - 1});
  int kept = 0;
  for (const ValueId value : block.values()) kept += block.kept(value) ? 1 : 0;
  EXPECT_EQ(kept, 1);
  EXPECT_FALSE(check(block, base_run(block)).broken);
}

TEST(StitchedPlans, AreRightOnRandomGraphs) {
  oracle::Random random(2);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = oracle::random_graph(random, {8, 24, 40});
    const Bytes half{base_peak(graph).count() / 2};
    for (const PlanOrder& plan : stitched_plans(graph, half, never_stop)) {
      ++found;
      const Plan steps = with_earliest_frees(graph, plan.order);
      ASSERT_FALSE(check(graph, steps).broken) << i;
      EXPECT_EQ(simulate(graph, steps).peak, plan.peak) << i;
    }
  }
  EXPECT_GT(found, 500);
}

// To keep what parts the graph, and to run each block again, is one way to stitch.
TEST(StitchedPlans, AreNoWorseThanToKeepTheCutPoints) {
  for (const int layers : {4, 16, 50}) {
    const Graph graph = residual_net(layers);
    const Outcome cut_points = solve(find_solver("store-cut-points"), {graph, Budget{}}, Limits{});
    const auto plans = stitched_plans(graph, cut_points.peak, never_stop);
    ASSERT_FALSE(plans.empty());
    EXPECT_LE(plans.front().peak, cut_points.peak) << layers;
    EXPECT_LE(plans.front().cost, cut_points.cost) << layers;
  }
}

// The plain run has 769 values. 16 kept ones and the 16 layers between two of them fit 40 bytes,
// and most ops run twice.
TEST(StitchedPlans, GoForwardAgainFromFewValues) {
  const Graph graph = residual_net(256);
  const auto plans = stitched_plans(graph, Bytes{40}, never_stop);
  ASSERT_FALSE(plans.empty());
  EXPECT_LE(plans.front().peak, Bytes{40});
  EXPECT_LE(plans.front().cost, graph.base_cost() + graph.base_cost());
}

// No plan fits so little, and the search for memory begins at nothing.
TEST(StitchedPlans, EndAtTinyBudgets) {
  Graph graph = residual_net(200);
  std::vector<OpId> forward;
  for (OpId op{0}; op.index < 601; ++op.index) forward.push_back(op);
  graph = graph.pinned({}, forward);
  for (const std::int64_t bytes : {0, 1, 3}) {
    const auto plans = stitched_plans(graph, Bytes{bytes}, never_stop);
    for (const PlanOrder& plan : plans) EXPECT_GT(plan.peak, Bytes{bytes});
  }
}

TEST(StitchedPlans, AreNoneWhereNothingPartsTheGraph) {
  EXPECT_TRUE(stitched_plans(residual_net(0), Bytes{2}, never_stop).empty());
}

TEST(StitchedPlans, StopWhenTold) {
  EXPECT_TRUE(stitched_plans(residual_net(9), Bytes{9}, [] { return true; }).empty());
}

}  // namespace
}  // namespace reprise
