// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/training_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "reprise/core/topology.h"
#include "reprise/formats/json.h"
#include "tests/shared_data.h"

namespace reprise {
namespace {

Graph two_layers() {
  GraphBuilder build("net");
  const ValueId x = build.resident("x", Bytes{10});
  const ValueId a =
      build.op("a").cost(Cost{3}).workspace(Bytes{1}).reads({x}).makes("a", Bytes{20});
  build.op("b").cost(Cost{5}).reads({a}).makes("b", Bytes{30});
  return build.done();
}

std::string reads(const Graph& graph, std::string_view op) {
  std::string text;
  for (const ValueId value : graph.inputs(*NameIndex(graph).op(op)))
    text += graph.name(value) + ",";
  return text;
}

TEST(TrainingGraph, FollowsCheckmatesRules) {
  const Graph graph = training_graph(two_layers());
  const NameIndex names(graph);
  EXPECT_EQ(graph.ops().size(), 5U);
  EXPECT_EQ(reads(graph, "loss"), "b,");
  EXPECT_EQ(reads(graph, "b backward"), "b,loss,");
  EXPECT_EQ(reads(graph, "a backward"), "a,b,b gradient,");
  const OpId back = *names.op("a backward");
  EXPECT_EQ(graph.cost(back), Cost{6});
  EXPECT_EQ(graph.workspace(back), Bytes{1});
  EXPECT_EQ(graph.gradient_of(back), names.op("a"));
  EXPECT_EQ(graph.bytes(*names.value("a gradient")), Bytes{20});
  EXPECT_EQ(graph.phase(*names.op("a")), Phase::forward);
  EXPECT_EQ(graph.phase(*names.op("loss")), Phase::loss);
  EXPECT_EQ(graph.phase(back), Phase::backward);
}

TEST(TrainingGraph, ReadsWhatIsAskedFor) {
  BackwardRules rules;
  rules.reads = {.inputs = true, .outputs = false, .next_outputs = false};
  const Graph graph = training_graph(two_layers(), rules);
  EXPECT_EQ(reads(graph, "b backward"), "a,loss,");
  EXPECT_EQ(reads(graph, "a backward"), "x,b gradient,");
}

TEST(TrainingGraph, HangsTheLossOnWhatOnlyOpsWithoutOutputsRead) {
  GraphBuilder build("net");
  const ValueId a = build.op("a").makes("a", Bytes{1});
  build.op("print").reads({a});
  const Graph graph = training_graph(build.done());
  EXPECT_EQ(reads(graph, "loss"), "a,");
  EXPECT_EQ(reads(graph, "a backward"), "a,loss,");
}

TEST(TrainingGraph, RefusesAGraphThatHasABackwardPass) {
  EXPECT_THROW(training_graph(training_graph(two_layers())), InputError);
}

// The golden graphs: forward graph in, the published edges, costs, bytes and cut points out.
TEST(TrainingGraph, GivesThePublishedGraphs) {
  SKIP_WITHOUT_SHARED_DATA();
  const JsonDocument document(read_text(shared_data("golden/checkmate.json")));
  const auto number = [](JsonValue json) { return static_cast<std::uint32_t>(json.amount()); };
  const auto numbers = [&](JsonValue json) {
    std::vector<std::uint32_t> list;
    for (const JsonValue element : json.elements()) list.push_back(number(element));
    return list;
  };
  for (const JsonValue golden : document.root().at("graphs").members()) {
    const std::uint32_t layers = number(golden.at("n_fwd"));
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    for (const JsonValue edge : golden.at("edges").elements()) {
      const auto ends = numbers(edge);
      edges.emplace_back(ends[0], ends[1]);
    }
    std::vector<Cost> costs;
    for (const JsonValue cost : golden.at("cpu").elements()) costs.push_back(cost.cost());
    std::vector<Bytes> bytes;
    for (const JsonValue ram : golden.at("ram").elements()) bytes.push_back(ram.bytes());

    GraphBuilder build(std::string(golden.key()));
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      auto op = build.op(std::to_string(layer));
      op.cost(costs[layer]);
      for (const auto& [from, to] : edges) {
        if (to == layer) op.reads({ValueId{from}});
      }
      op.makes(std::to_string(layer), bytes[layer]);
    }
    const Graph forward = build.done();
    const Graph graph = training_graph(forward);

    std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
    for (const OpId op : graph.ops()) {
      EXPECT_EQ(graph.cost(op), costs[op.index]) << golden.key() << " " << op.index;
      EXPECT_EQ(graph.bytes(graph.outputs(op)[0]), bytes[op.index]) << golden.key();
      for (const ValueId input : graph.inputs(op)) {
        found.emplace_back(graph.producer(input)->index, op.index);
      }
    }
    std::sort(found.begin(), found.end());
    std::sort(edges.begin(), edges.end());
    EXPECT_EQ(found, edges) << golden.key();

    std::vector<std::uint32_t> cuts;
    for (const OpId op : articulation_points(forward, OpSet(layers, true)))
      cuts.push_back(op.index);
    EXPECT_EQ(cuts, numbers(golden.at("articulation_points"))) << golden.key();
  }
}

}  // namespace
}  // namespace reprise
