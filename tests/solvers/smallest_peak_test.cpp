// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/smallest_peak.h"

#include <gtest/gtest.h>

#include "tests/oracle/exhaustive.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

TEST(SmallestPeakBound, IsTheLargestOp) {
  GraphBuilder build("net");
  const ValueId x = build.resident("x", Bytes{100});
  const ValueId a = build.op("a").workspace(Bytes{5}).reads({x}).makes("a", Bytes{4});
  const ValueId b = build.op("b").reads({a}).makes("b", Bytes{4}).over(a);
  build.op("c").reads({b}).makes("c", Bytes{4});
  const PeakBound bound = smallest_peak_bound(build.done());
  EXPECT_EQ(bound.bytes, Bytes{9});  // a: 4 + 5; b: 4 in one buffer; c: 8
  EXPECT_EQ(bound.op, OpId{0});
}

TEST(SmallestPeakBound, IsWhatIsKeptWhereThatIsMore) {
  GraphBuilder build("net");
  for (const char* name : {"a", "b", "c"}) build.op(name).makes(name, Bytes{4}).kept();
  const PeakBound bound = smallest_peak_bound(build.done());
  EXPECT_EQ(bound.bytes, Bytes{12});
  EXPECT_EQ(bound.op, std::nullopt);
}

TEST(SmallestPeakBound, IsNeverAboveTheSmallestPeak) {
  oracle::Random random(9);
  int tight = 0;
  for (int i = 0; i < 1'000; ++i) {
    const Graph graph = oracle::random_graph(random, {1, 6, 7});
    const Bytes bound = smallest_peak_bound(graph).bytes;
    const Bytes least = oracle::smallest_peak(graph);
    ASSERT_LE(bound, least) << "graph " << i;
    if (bound == least) ++tight;
  }
  EXPECT_GT(tight, 300);
}

}  // namespace
}  // namespace reprise
