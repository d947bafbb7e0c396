// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/checkmate/schedule.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random_graph.h"
#include "tests/oracle/random_plan.h"
#include "tests/solvers/checkmate_golden.h"

namespace reprise {
namespace {

std::vector<OpId> forward_ops(const Graph& graph) {
  std::vector<OpId> ops;
  for (std::uint32_t i = 0; i < graph.ops().size() / 2; ++i) ops.push_back(OpId{i});
  return ops;
}

StageSchedule from_checkpoints(const Graph& graph, std::span<const OpId> checkpoints) {
  const StageMatrix stored = stored_from_checkpoints(graph, checkpoints);
  return {fewest_computed(OpGraph(graph), stored), stored};
}

// Each stage has the op before it stored and nothing else: Checkmate's CHECKPOINT_LAST_NODE.
StageSchedule last_node_only(const Graph& graph) {
  StageMatrix stored(graph.ops().size(), graph.ops().size(), 0);
  for (std::uint32_t i = 0; i + 1 < graph.ops().size(); ++i) stored.at(i + 1, OpId{i}) = 1;
  return {fewest_computed(OpGraph(graph), stored), stored};
}

void expect_replay(const Graph& graph, const StageSchedule& schedule, JsonValue golden) {
  const StageReplay found = replay(OpGraph(graph), schedule);
  EXPECT_EQ(found.cost, golden.at("cpu").cost());
  EXPECT_EQ(found.peak, golden.at("act").bytes());
  EXPECT_EQ(found.evaluations, static_cast<std::size_t>(golden.at("evals").amount()));

  const Plan plan = plan_of(graph, schedule.computed);
  const Verdict verdict = check(graph, plan);
  ASSERT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
  EXPECT_EQ(verdict.cost, found.cost);
  EXPECT_LE(verdict.peak, found.peak);
}

TEST(CheckmateSchedule, GivesThePublishedFiguresForThePlainStrategies) {
  SKIP_WITHOUT_SHARED_DATA();
  const CheckmateGolden golden;
  for (const char* model : {"VGG16", "VGG19", "ResNet50"}) {
    SCOPED_TRACE(model);
    const Graph graph = golden.graph(model);
    const JsonValue rows = golden.root().at("baselines").at(model).at("res");
    OpSet forward(graph.ops().size(), false);
    for (const OpId op : forward_ops(graph)) forward[op] = true;
    const std::vector<OpId> cuts = articulation_points(graph, forward);
    expect_replay(graph, from_checkpoints(graph, forward_ops(graph)), rows.at("CHECKPOINT_ALL"));
    expect_replay(graph, from_checkpoints(graph, cuts), rows.at("CHECKPOINT_ALL_AP"));
    if (const auto row = rows.find("CHECKPOINT_LAST_NODE")) {
      expect_replay(graph, last_node_only(graph), *row);
    }
  }
}

// Closed forms: all costs 2N+1 at N+2 bytes, the last node alone 2N+1 + N(N+1)/2 at 3.
TEST(CheckmateSchedule, FollowsTheClosedFormsOnUnitChains) {
  for (const std::int64_t n : {2, 4, 8, 16, 32}) {
    const Graph graph = unit_chain(static_cast<std::size_t>(n));
    const OpGraph ops(graph);
    const StageReplay all = replay(ops, from_checkpoints(graph, forward_ops(graph)));
    EXPECT_EQ(all.cost, Cost{2 * n + 1});
    EXPECT_EQ(all.peak, Bytes{n + 2});
    const StageReplay last = replay(ops, last_node_only(graph));
    EXPECT_EQ(last.cost, Cost{2 * n + 1 + n * (n + 1) / 2});
    EXPECT_EQ(last.peak, Bytes{3});
  }
}

TEST(CheckmateSchedule, IsThePlanAndBack) {
  const Graph graph = unit_chain(8);
  const std::vector<OpId> checkpoints{OpId{2}, OpId{5}};
  const StageSchedule schedule = from_checkpoints(graph, checkpoints);
  const Plan plan = plan_of(graph, schedule.computed);
  const auto back = stages_from_plan(graph, plan);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->computed, schedule.computed);
  EXPECT_EQ(plan_of(graph, back->computed), plan);
  EXPECT_EQ(replay(OpGraph(graph), *back).cost, simulate(graph, plan).cost);
}

TEST(CheckmateSchedule, TakesAnyPlanThatAdvancesStageByStage) {
  oracle::Random random(40);
  int taken = 0;
  for (int i = 0; i < 2'000; ++i) {
    const Graph graph = oracle::random_graph(random, {1, 6, 8});
    const Plan plan = oracle::random_right_plan(graph, random);
    const auto schedule = stages_from_plan(graph, plan);
    if (!schedule) continue;
    ++taken;
    const Cost cost = simulate(graph, plan).cost;
    EXPECT_EQ(replay(OpGraph(graph), *schedule).cost, cost) << i;
    EXPECT_EQ(simulate(graph, plan_of(graph, schedule->computed)).cost, cost) << i;
  }
  EXPECT_GT(taken, 200);
}

TEST(CheckmateSchedule, RefusesAPlanThatRunsAheadOfTheProgram) {
  GraphBuilder build("two");
  build.op("a").makes("a", Bytes{1});
  build.op("b").makes("b", Bytes{1});
  const Graph graph = build.done();
  const std::vector<OpId> swapped{OpId{1}, OpId{0}};
  const std::vector<OpId> twice{OpId{0}, OpId{0}, OpId{1}};
  const std::vector<OpId> late{OpId{0}, OpId{1}, OpId{1}};
  EXPECT_TRUE(stages_from_plan(graph, base_run(graph)));
  EXPECT_FALSE(stages_from_plan(graph, with_earliest_frees(graph, swapped)));
  EXPECT_TRUE(stages_from_plan(graph, with_earliest_frees(graph, twice)));  // once in each stage
  EXPECT_FALSE(stages_from_plan(graph, with_earliest_frees(graph, late)));
}

TEST(CheckmateSchedule, KnowsAMirroredGraph) {
  EXPECT_TRUE(is_mirrored(unit_chain(3)));
  GraphBuilder build("forward");
  build.op("a").makes("a", Bytes{1});
  EXPECT_FALSE(is_mirrored(build.done()));
}

}  // namespace
}  // namespace reprise
