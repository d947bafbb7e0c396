// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/lifetimes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reprise/core/checker.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random_graph.h"
#include "tests/oracle/random_plan.h"

namespace reprise {
namespace {

// a makes two values, of which nobody reads the second; b and c read the first.
Graph fork() {
  GraphBuilder build("fork");
  auto op = build.op("a");
  const ValueId a = op.makes("a", Bytes{1});
  op.makes("mask", Bytes{1});
  const ValueId b = build.op("b").reads({a}).makes("b", Bytes{1});
  build.op("c").reads({a, b}).makes("c", Bytes{1}).kept();
  return build.done();
}

TEST(EarliestFrees, ComeRightAfterTheLastUse) {
  const Graph graph = fork();
  EXPECT_EQ(words(graph, base_run(graph)), "a -mask b c -a -b");
}

TEST(EarliestFrees, LetAValueGoBetweenItsLastUseAndItsNextMaking) {
  const Graph graph = fork();
  const std::vector<OpId> order{OpId{0}, OpId{1}, OpId{0}, OpId{2}};
  EXPECT_EQ(words(graph, with_earliest_frees(graph, order)), "a -mask b -a a -mask c -a -b");
}

TEST(EarliestFrees, KeepTheLastCopyOfAKeptValue) {
  const Graph graph = fork();
  const std::vector<OpId> order{OpId{0}, OpId{1}, OpId{2}, OpId{2}};
  EXPECT_EQ(words(graph, with_earliest_frees(graph, order)), "a -mask b c -c c -a -b");
}

// The plan is right, and no free can come a compute earlier: the value would be missed, or is made
// by that compute.
TEST(EarliestFrees, CannotComeEarlierOnRandomOrders) {
  oracle::Random random(6);
  for (int i = 0; i < 500; ++i) {
    const Graph graph = oracle::random_graph(random);
    std::vector<OpId> order;
    for (const Step step : oracle::random_right_plan(graph, random).steps) {
      if (step.kind() == StepKind::compute) order.push_back(step.op());
    }
    const Plan plan = with_earliest_frees(graph, order);
    ASSERT_FALSE(check(graph, plan).broken);
    std::size_t last_compute = 0;
    for (std::size_t step = 0; step < plan.steps.size(); ++step) {
      if (plan.steps[step].kind() == StepKind::compute) {
        last_compute = step;
        continue;
      }
      Plan earlier = plan;
      const auto begin = earlier.steps.begin() + static_cast<std::ptrdiff_t>(last_compute);
      std::rotate(begin, earlier.steps.begin() + static_cast<std::ptrdiff_t>(step),
                  earlier.steps.begin() + static_cast<std::ptrdiff_t>(step) + 1);
      EXPECT_TRUE(check(graph, earlier).broken) << "graph " << i << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace reprise
