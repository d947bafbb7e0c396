// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/graph_json.h"

#include <gtest/gtest.h>

#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

Graph read(const std::string& content) {
  return read_graph_json(JsonDocument(Text{"net.json", content}));
}

std::string message_of(const std::string& content) {
  try {
    read(content);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

// A graph of one op 'a' that reads the resident x and makes h; `values` and `op` are added to.
std::string net(const std::string& values, const std::string& op,
                const std::string& more_ops = "") {
  return R"({"format": "reprise-graph", "version": 1, "name": "net", "cost_unit": "ns", "values": [)"
         R"({"name": "x", "bytes": 1, "resident": true}, {"name": "h", "bytes": 8})" +
         values + R"(], "ops": [{"name": "a", "cost": 2, "inputs": ["x"], "outputs": ["h"])" + op +
         "}" + more_ops + "]}";
}

TEST(GraphJson, ReadsTheContractsExample) {
  const Graph graph = read(R"(
{"format": "reprise-graph", "version": 1, "name": "tiny", "cost_unit": "ns",
 "values": [{"name": "x", "bytes": 4096, "resident": true},
            {"name": "h", "bytes": 8192}, {"name": "y", "bytes": 8192, "keep": true}],
 "ops": [{"name": "conv", "cost": 120, "workspace": 512, "inputs": ["x"], "outputs": ["h"]},
         {"name": "relu", "cost": 10, "inputs": ["h"], "outputs": ["y"], "overwrites": {"y": "h"}}]}
)");
  EXPECT_EQ(graph.name(), "tiny");
  EXPECT_EQ(graph.cost_unit(), CostUnit::ns);
  EXPECT_EQ(graph.workspace(OpId{0}), Bytes{512});
  EXPECT_EQ(graph.overwritten(ValueId{2}), ValueId{1});
  EXPECT_TRUE(graph.kept(ValueId{2}));
}

TEST(GraphJson, ReadsKeysInAnyOrder) {
  const Graph graph = read(R"(
{"ops": [{"outputs": ["h"], "phase": "forward", "inputs": [], "cost": 1, "name": "f"},
         {"overwrites": {"y": "h"}, "outputs": ["y", "z"], "inputs": ["h"], "kind": "split", "cost": 1,
          "recomputable": false, "gradient_of": "f", "phase": "backward", "name": "g"}],
 "values": [{"bytes": 1, "name": "h"}, {"name": "y", "bytes": 1}, {"name": "z", "bytes": 0}],
 "version": 1, "format": "reprise-graph"}
)");
  EXPECT_EQ(graph.kind(OpId{1}), "split");
  EXPECT_FALSE(graph.recomputable(OpId{1}));
  EXPECT_EQ(graph.gradient_of(OpId{1}), OpId{0});
  EXPECT_EQ(graph.phase(OpId{1}), Phase::backward);
  EXPECT_EQ(graph.outputs(OpId{1}).size(), 2U);
}

TEST(GraphJson, RefusesWithThePath) {
  EXPECT_EQ(message_of(net("", "")), "accepted");
  EXPECT_EQ(message_of(net("", R"(, "wrokspace": 1)")),
            "net.json: ops[0].wrokspace: unknown field (did you mean 'workspace'?)");
  EXPECT_EQ(message_of(net("", R"(, "phase": "foward")")),
            "net.json: ops[0].phase: unknown phase 'foward' (did you mean 'forward'?): want one of "
            "forward, loss, backward");
  EXPECT_EQ(message_of(net("", R"(, "gradient_of": "b")")),
            "net.json: ops[0].gradient_of: no op 'b' before this one");
  EXPECT_EQ(message_of(net(R"(, {"name": "y", "bytes": 1})", "")),
            "net.json: values[2]: value 'y': no op makes it and it is not resident");
  EXPECT_EQ(message_of(net(R"(, {"name": "x", "bytes": 1})", "")),
            "net.json: values[2].name: the name 'x' is taken");
  EXPECT_EQ(
      message_of(net("", "", R"(, {"name": "b", "cost": 0, "inputs": ["hh"], "outputs": []})")),
      "net.json: ops[1].inputs[0]: unknown value 'hh' (did you mean 'h'?)");
  EXPECT_EQ(
      message_of(net("", "", R"(, {"name": "b", "cost": 0, "inputs": [], "outputs": ["h"]})")),
      "net.json: ops[1].outputs[0]: op 'b': makes 'h', which 'a' makes already");
  EXPECT_EQ(
      message_of(net("", R"(, "overwrites": {"h": "x"})")),
      "net.json: ops[0].overwrites.h: op 'a': 'h' can't overwrite 'x': the second is resident");
}

void expect_same(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_EQ(a.name(), b.name());
  EXPECT_EQ(a.cost_unit(), b.cost_unit());
  ASSERT_EQ(a.has_phases(), b.has_phases());
  for (const OpId op : a.ops()) {
    EXPECT_EQ(a.cost(op), b.cost(op));
    EXPECT_EQ(a.kind(op), b.kind(op));
    EXPECT_EQ(a.recomputable(op), b.recomputable(op));
    EXPECT_EQ(a.gradient_of(op), b.gradient_of(op));
    if (a.has_phases()) {
      EXPECT_EQ(a.phase(op), b.phase(op));
    }
  }
  for (const ValueId value : a.values()) EXPECT_EQ(a.kept(value), b.kept(value));
}

TEST(GraphJson, WhatIsWrittenReadsBackTheSame) {
  oracle::Random random(8);
  for (int i = 0; i < 500; ++i) {
    const Graph graph = oracle::random_graph(random);
    expect_same(read(write_graph_json(graph)), graph);
  }
}

TEST(GraphJson, EscapesNames) {
  GraphBuilder build("a \"graph\"\\");
  build.op("conv \"1\"\\é").kind("\"").makes("v\\", Bytes{1});
  const Graph graph = build.done();
  expect_same(read(write_graph_json(graph)), graph);
}

}  // namespace
}  // namespace reprise
