// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/dot.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(Dot, DrawsOpsEdgesAndKeptValues) {
  GraphBuilder build("a \"net\"");
  const ValueId x = build.resident("x", Bytes{4});
  const ValueId h = build.op("conv").cost(Cost{5}).reads({x}).makes("h", Bytes{8});
  build.op("relu").never_again().reads({h}).makes("y", Bytes{8}).over(h).kept();
  const Graph graph = build.done();
  EXPECT_EQ(write_dot(graph), R"(digraph "a \"net\"" {
  node [shape=box, style=filled, fontname="Helvetica", fontsize=10];
  edge [fontname="Helvetica", fontsize=8];
  op0 [label="conv\ncost 5", fillcolor="#f2f2f2"];
  op1 [label="relu\ncost 0", fillcolor="#f2f2f2", penwidth=2];
  op0 -> op1 [label="h\n8 B", style=dashed];
  value2 [label="y\n8 B", shape=note, fillcolor="#ffffff"];
  op1 -> value2;
}
)");
}

}  // namespace
}  // namespace reprise
