// SPDX-License-Identifier: Apache-2.0
//
// Hand-sized plans; what the two judges say of thousands of others is in tests/oracle.
#include <gtest/gtest.h>

#include <array>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"

namespace reprise {
namespace {

// What both have to say of a right plan.
struct Says {
  Bytes peak;
  Cost cost;
};

void expect_right(const Graph& graph, const Plan& plan, Says says) {
  const Verdict verdict = check(graph, plan);
  ASSERT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
  EXPECT_EQ(verdict.peak, says.peak);
  EXPECT_EQ(verdict.cost, says.cost);
  const Replay replay = simulate(graph, plan);
  EXPECT_EQ(replay.peak, says.peak);
  EXPECT_EQ(replay.cost, says.cost);
}

void expect_broken(const Graph& graph, const Plan& plan, const std::string& message) {
  const Verdict verdict = check(graph, plan);
  ASSERT_TRUE(verdict.broken);
  EXPECT_EQ(describe(graph, *verdict.broken), message);
  try {
    simulate(graph, plan);
    FAIL() << "simulated";
  } catch (const PlanError& error) {
    EXPECT_EQ(error.what(), message);
  }
}

class Tiny : public testing::Test {
 protected:
  static Graph build() {
    GraphBuilder build("tiny");
    const ValueId x = build.resident("x", Bytes{100});
    const ValueId h =
        build.op("conv").cost(Cost{5}).workspace(Bytes{2}).reads({x}).makes("h", Bytes{8});
    build.op("relu").cost(Cost{1}).reads({h}).makes("y", Bytes{8}).over(h).kept();
    return build.done();
  }
  const Graph graph = build();
  const Step conv = Step::compute(OpId{0});
  const Step relu = Step::compute(OpId{1});
  const Step free_x = Step::free(ValueId{0});
  const Step free_h = Step::free(ValueId{1});
  const Step free_y = Step::free(ValueId{2});
};

TEST_F(Tiny, CountsOneBufferWhenAnInputThatDiesIsOverwritten) {
  // conv: h 8 + workspace 2 = 10; relu: h and y share 8.
  expect_right(graph, {{conv, relu, free_h}}, {Bytes{10}, Cost{6}});
}

TEST_F(Tiny, CountsTwoBuffersWhenTheInputStays) {
  // relu: h 8 + y 8 = 16.
  expect_right(graph, {{conv, relu}}, {Bytes{16}, Cost{6}});
}

TEST_F(Tiny, CountsTwoBuffersWhenTheInputIsFreedAfterTheNextCompute) {
  // conv again, with h there and y there: h 8, y 8, second buffer for h 8, workspace 2 = 26.
  expect_right(graph, {{conv, relu, conv, free_h}}, {Bytes{26}, Cost{11}});
}

TEST_F(Tiny, CountsASecondBufferForAnOutputThatIsThere) {
  // relu again while y is there: h 8, y 8, second y 8 = 24, though h is freed next.
  expect_right(graph, {{conv, relu, relu, free_h}}, {Bytes{24}, Cost{7}});
}

TEST_F(Tiny, LetsAKeptValueBeFreedAndMadeAgain) {
  expect_right(graph, {{conv, relu, free_y, relu, free_h}}, {Bytes{16}, Cost{7}});
}

TEST_F(Tiny, NamesTheFirstRuleBroken) {
  expect_broken(graph, {{relu}}, "steps[0]: 'relu' reads 'h', which is not there");
  expect_broken(graph, {{conv, free_h, relu}}, "steps[2]: 'relu' reads 'h', which is not there");
  expect_broken(graph, {{free_x}}, "steps[0]: frees 'x', which is resident");
  expect_broken(graph, {{free_h}}, "steps[0]: frees 'h', which is not there");
  expect_broken(graph, {{conv, relu, free_y}}, "at the end: 'y' is kept, and is not there");
  expect_broken(graph, {{conv, free_h}}, "at the end: 'relu' never ran");
  expect_broken(graph, {}, "at the end: 'conv' never ran");
  expect_broken(graph, {{Step::compute(OpId{7})}},
                "steps[0]: op 7 is not in the graph, which has 2");
  expect_broken(graph, {{Step::free(ValueId{7})}},
                "steps[0]: value 7 is not in the graph, which has 3");
  const Graph once = graph.pinned({}, std::array{OpId{0}});
  expect_broken(once, {{conv, conv}}, "steps[1]: 'conv' runs a second time, and may run once only");
}

TEST_F(Tiny, ReplaysStepByStep) {
  const Plan plan{{conv, relu, free_h}};
  const Replay replay = simulate(graph, plan);
  EXPECT_EQ(replay.in_use, (std::vector<Bytes>{Bytes{10}, Bytes{8}, Bytes{8}}));
  EXPECT_EQ(replay.peak_step, 0U);
  EXPECT_EQ(alive_during(graph, plan, 0), (std::vector<ValueId>{ValueId{1}}));
  EXPECT_EQ(alive_during(graph, plan, 1), (std::vector<ValueId>{ValueId{2}}));  // in h's buffer
  EXPECT_EQ(alive_during(graph, {{conv, relu}}, 1), (std::vector<ValueId>{ValueId{1}, ValueId{2}}));
}

TEST(Simulate, GivesThePeakToTheEarliestStep) {
  GraphBuilder build("even");
  build.op("a").makes("a", Bytes{3});
  build.op("b").makes("b", Bytes{3});
  const Graph graph = build.done();
  EXPECT_EQ(simulate(graph, base_run(graph)).peak_step, 0U);
}

TEST(Simulate, TakesAGraphWithoutOps) {
  const Graph graph = GraphBuilder("empty").done();
  const Replay replay = simulate(graph, {});
  EXPECT_EQ(replay.peak, Bytes{0});
  EXPECT_EQ(replay.peak_step, std::nullopt);
  EXPECT_FALSE(check(graph, {}).broken);
}

TEST(Simulate, ThrowsWhereCostsPass64Bits) {
  GraphBuilder build("dear");
  build.op("a").cost(Cost{INT64_MAX});
  const Graph graph = build.done();
  const Step a = Step::compute(OpId{0});
  EXPECT_THROW(simulate(graph, {{a, a}}), OverflowError);
  EXPECT_THROW(check(graph, {{a, a}}), OverflowError);
}

}  // namespace
}  // namespace reprise
