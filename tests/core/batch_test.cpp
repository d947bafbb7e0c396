// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/batch.h"

#include <gtest/gtest.h>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "tests/core/graphs.h"

namespace reprise {
namespace {

// A resident w, an activation a, b over it, and a kept gradient over b.
Graph one_layer() {
  GraphBuilder build("layer", CostUnit::ns);
  const ValueId w = build.resident("w", Bytes{7});
  const ValueId a =
      build.op("f").kind("conv").cost(Cost{3}).workspace(Bytes{2}).reads({w}).makes("a", Bytes{5});
  const ValueId b = build.op("g").cost(Cost{4}).reads({a}).makes("b", Bytes{5}).over(a);
  build.op("h").cost(Cost{1}).reads({b}).never_again().makes("dw", Bytes{5}).over(b).kept();
  return build.done();
}

TEST(AtBatch, ScalesWhatGrowsAndLeavesTheRest) {
  const Graph graph = at_batch(one_layer(), 10);
  const NameIndex names(graph);
  EXPECT_EQ(graph.name(), "layer");
  EXPECT_EQ(graph.cost_unit(), CostUnit::ns);
  EXPECT_EQ(graph.bytes(*names.value("w")), Bytes{7});
  EXPECT_EQ(graph.bytes(*names.value("a")), Bytes{50});
  EXPECT_EQ(graph.bytes(*names.value("dw")), Bytes{5});
  EXPECT_TRUE(graph.kept(*names.value("dw")));
  EXPECT_EQ(graph.workspace(*names.op("f")), Bytes{20});
  EXPECT_EQ(graph.kind(*names.op("f")), "conv");
  EXPECT_EQ(graph.base_cost(), Cost{80});
  EXPECT_FALSE(graph.recomputable(*names.op("h")));
  EXPECT_FALSE(graph.has_phases());
}

TEST(AtBatch, OverwritesOnlyWhatGrowsAlike) {
  const Graph graph = at_batch(one_layer(), 10);
  const NameIndex names(graph);
  EXPECT_EQ(graph.overwritten(*names.value("b")), names.value("a"));
  EXPECT_EQ(graph.overwritten(*names.value("dw")), std::nullopt);  // 5 B against 50
}

TEST(AtBatch, ScalesPeaksAndCostsOfGraphsWithoutKeptValues) {
  const Graph graph = unit_chain(5);
  const Plan plan = base_run(graph);
  const Replay one = simulate(graph, plan);
  const Replay seven = simulate(at_batch(graph, 7), plan);
  EXPECT_EQ(seven.peak, one.peak * 7);
  EXPECT_EQ(seven.cost, one.cost * 7);
  EXPECT_EQ(at_batch(graph, 7).phase(OpId{5}), Phase::loss);
  EXPECT_EQ(at_batch(graph, 7).gradient_of(OpId{6}), OpId{4});
}

TEST(AtBatch, RefusesAmountsPast64Bits) {
  try {
    at_batch(one_layer(), std::int64_t{1} << 62);
    FAIL();
  } catch (const OverflowError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("at batch 4611686018427387904: ", 0), 0U);
  }
}

}  // namespace
}  // namespace reprise
