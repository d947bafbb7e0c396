// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/node_link.h"

#include <gtest/gtest.h>

#include <array>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "tests/core/graphs.h"

namespace reprise {
namespace {

Graph read(const std::string& content) {
  return read_node_link(JsonDocument(Text{"net.json", content}));
}

std::string message_of(const std::string& content) {
  try {
    read(content);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string ops(const Graph& graph) {
  std::string text;
  for (const OpId op : graph.ops()) text += graph.name(op) + " ";
  return text;
}

TEST(NodeLink, ReadsTheSpellingOfCheckmatesProfiles) {
  const Graph graph = read(R"(
{"directed": true, "multigraph": false, "graph": {"name": "net"},
 "nodes": [{"name": "conv", "backward": false, "cost_cpu": 3, "cost_ram": 10, "id": 0},
           {"name": "loss", "backward": true, "cost_cpu": 0, "cost_ram": 4, "id": 1},
           {"name": "grad", "backward": true, "cost_cpu": 6, "cost_ram": 10, "id": 2}],
 "links": [{"source": 0, "target": 1}, {"source": 1, "target": 2}, {"source": 0, "target": 2}]}
)");
  EXPECT_EQ(graph.name(), "net");
  EXPECT_EQ(ops(graph), "conv loss grad ");
  EXPECT_EQ(graph.phase(OpId{0}), Phase::forward);
  EXPECT_EQ(graph.phase(OpId{1}), Phase::loss);
  EXPECT_EQ(graph.phase(OpId{2}), Phase::backward);
  EXPECT_EQ(graph.base_cost(), Cost{9});
  // grad runs with conv 10, loss 4 and itself 10; nothing is kept or resident.
  EXPECT_EQ(simulate(graph, base_run(graph)).peak, Bytes{24});
}

TEST(NodeLink, ReadsTheSpellingOfMoccasinsData) {
  const Graph graph = read(R"(
{"directed": true, "graph": {"name": "net", "order": [1, 0, 2]},
 "nodes": [{"out_cost": 5, "param_cost": 9, "duration": 1, "name": 0},
           {"out_cost": 6, "param_cost": 0, "duration": 2.0, "name": 1},
           {"out_cost": 7, "param_cost": 0, "duration": 3, "name": 2}],
 "links": [{"0": 0, "1": 2}, {"0": 1, "1": 2}, {"0": 1, "1": 2}]}
)");
  EXPECT_EQ(ops(graph), "1 0 2 ");
  EXPECT_FALSE(graph.has_phases());
  EXPECT_EQ(graph.inputs(OpId{2}).size(), 2U);
}

TEST(NodeLink, RunsOfTheReadyNodesTheOneListedFirst) {
  const Graph graph = read(R"(
{"nodes": [{"id": "c", "cost_ram": 1, "cost_cpu": 1}, {"id": "b", "cost_ram": 1, "cost_cpu": 1},
           {"id": "a", "cost_ram": 1, "cost_cpu": 1}],
 "edges": [{"source": "a", "target": "c"}]}
)");
  EXPECT_EQ(ops(graph), "b a c ");
}

std::string two_nodes(const std::string& second, const std::string& links,
                      const std::string& attributes = "{}") {
  return R"({"graph": )" + attributes +
         R"(, "nodes": [{"id": 0, "name": "a", "cost_ram": 1, "cost_cpu": 1}, )" + second +
         R"(], "links": [)" + links + "]}";
}

TEST(NodeLink, RefusesWithThePath) {
  const std::string b = R"({"id": 1, "name": "b", "cost_ram": 1, "cost_cpu": 1})";
  EXPECT_EQ(message_of(two_nodes(b, "")), "accepted");
  EXPECT_EQ(message_of(two_nodes(b, R"({"source": 0, "target": 7})")),
            "net.json: links[0].target: unknown node '7'");
  EXPECT_EQ(message_of(two_nodes(b, R"({"source": 0, "target": "1"})")),
            "net.json: links[0].target: unknown node '1'");  // the string is not the number
  EXPECT_EQ(message_of(two_nodes(b, R"({"source": 0, "target": 1}, {"source": 1, "target": 0})")),
            "net.json: nodes[0]: the links form a cycle: 'a' → 'b' → 'a'");
  EXPECT_EQ(message_of(two_nodes(R"({"id": 1, "name": "b", "cost_ram": 1, "cost_cpu": 0.5})", "")),
            "net.json: nodes[1].cost_cpu: 0.5 is not a whole number (scale the costs to whole "
            "numbers)");
  EXPECT_EQ(message_of(two_nodes(R"({"id": 0, "name": "b", "cost_ram": 1, "cost_cpu": 1})", "")),
            "net.json: nodes[1]: the id is taken");
  EXPECT_EQ(message_of(two_nodes(R"({"id": 1, "name": "a", "cost_ram": 1, "cost_cpu": 1})", "")),
            "net.json: nodes[1]: op 'a': the name 'a' is taken");
  EXPECT_EQ(message_of(two_nodes(R"({"id": 1, "name": "b", "cost_cpu": 1})", "")),
            "net.json: nodes[1]: want a field cost_ram or out_cost");
  EXPECT_EQ(
      message_of(two_nodes(
          R"({"id": 1, "name": "b", "cost_ram": 1, "cost_cpu": 1, "backward": true})", "")),
      "net.json: nodes[0]: op 'a': has no phase though others have one: either every op has a "
      "phase or none");
  EXPECT_EQ(message_of(two_nodes(b, "", R"({"order": [0]})")),
            "net.json: graph.order: 1 of 2 nodes are listed");
  EXPECT_EQ(
      message_of(two_nodes(b, R"({"source": 0, "target": 1})", R"({"order": [1, 0]})")),
      "net.json: nodes[1]: op 'b': reads 'a' before 'a' makes it: ops stand in the order they "
      "run");
}

TEST(NodeLink, WhatIsWrittenReadsBackTheSame) {
  const Graph graph = unit_chain(4);
  const std::string text = write_node_link(graph);
  const Graph back = read(text);
  EXPECT_EQ(back.fingerprint(), graph.fingerprint());
  EXPECT_EQ(back.phase(OpId{4}), Phase::loss);
  EXPECT_EQ(write_node_link(back), text);
}

TEST(NodeLink, DoesNotWriteWhatItCannotSay) {
  GraphBuilder build("two outputs");
  auto op = build.op("split");
  op.makes("a", Bytes{1});
  op.makes("b", Bytes{1});
  const Graph graph = build.done();
  EXPECT_THROW(write_node_link(graph), InputError);
  EXPECT_THROW(write_node_link(unit_chain(2).pinned(std::array{ValueId{0}}, {})), InputError);
  EXPECT_THROW(write_node_link(unit_chain(2).pinned({}, std::array{OpId{0}})), InputError);
}

}  // namespace
}  // namespace reprise
