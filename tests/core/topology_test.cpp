// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/topology.h"

#include <gtest/gtest.h>

#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

using Numbers = std::vector<std::uint32_t>;

Digraph digraph(std::size_t count, std::vector<Digraph::Edge> edges) { return {count, edges}; }

TEST(TopologicalOrder, TakesTheFirstReadyNode) {
  // 3 → 0 and 1 → 2: ready at first are 1 and 3.
  EXPECT_EQ(topological_order(digraph(4, {{3, 0}, {1, 2}})), (Numbers{1, 2, 3, 0}));
}

TEST(TopologicalOrder, TakesTheLowestRankFirst) {
  const std::vector<std::int64_t> rank{5, 1, 0, 1};
  EXPECT_EQ(topological_order(digraph(4, {}), rank), (Numbers{2, 1, 3, 0}));
}

TEST(TopologicalOrder, HasNoAnswerForACycle) {
  const Digraph graph = digraph(4, {{0, 1}, {1, 2}, {2, 1}, {2, 3}});
  EXPECT_EQ(topological_order(graph), std::nullopt);
  EXPECT_EQ(find_cycle(graph), (Numbers{1, 2}));
  EXPECT_EQ(find_cycle(digraph(2, {{0, 0}})), (Numbers{0}));
  EXPECT_TRUE(find_cycle(digraph(3, {{0, 1}, {0, 2}, {1, 2}})).empty());
}

TEST(CycleText, LeavesTheMiddleOfALongCycleOut) {
  const auto name = [](std::uint32_t node) { return std::to_string(node); };
  EXPECT_EQ(cycle_text(Numbers{1, 2}, name), "'1' → '2' → '1'");
  Numbers many(100);
  for (std::uint32_t i = 0; i < 100; ++i) many[i] = i;
  EXPECT_EQ(cycle_text(many, name), "'0' → '1' → '2' → '3' → … → '96' → '97' → '98' → '99' → '0'");
}

// x → a → b → c → d, with a skip from a to c, and a side branch w → d.
Graph with_skip() {
  GraphBuilder build("skip");
  const ValueId a = build.op("a").makes("a", Bytes{1});
  const ValueId b = build.op("b").reads({a}).makes("b", Bytes{1});
  const ValueId c = build.op("c").reads({a, b}).makes("c", Bytes{1});
  const ValueId w = build.op("w").makes("w", Bytes{1});
  build.op("d").reads({c, w}).makes("d", Bytes{1});
  return build.done();
}

std::string names(const Graph& graph, const std::vector<OpId>& ops) {
  std::string text;
  for (const OpId op : ops) text += graph.name(op);
  return text;
}

std::string names(const Graph& graph, const OpSet& ops) {
  std::string text;
  for (const OpId op : graph.ops()) text += ops[op] ? graph.name(op) : "";
  return text;
}

TEST(Reachability, FollowsValuesBothWays) {
  const Graph graph = with_skip();
  const NameIndex index(graph);
  EXPECT_EQ(names(graph, ancestors(graph, *index.op("c"))), "ab");
  EXPECT_EQ(names(graph, descendants(graph, *index.op("b"))), "cd");
}

TEST(ArticulationPoints, AreWhatEveryWayGoesThrough) {
  const Graph graph = with_skip();
  const OpSet all(graph.ops().size(), true);
  // b has the skip beside it, w joins from the side.
  EXPECT_EQ(names(graph, articulation_points(graph, all)), "acd");
}

TEST(ArticulationPoints, OfAChainAreAllOfIt) {
  GraphBuilder build("chain");
  ValueId last = build.op("0").makes("0", Bytes{1});
  for (int i = 1; i < 50'000; ++i) {  // far deeper than a recursion could go
    const std::string name = std::to_string(i);
    last = build.op(name).reads({last}).makes(name, Bytes{1});
  }
  const Graph graph = build.done();
  EXPECT_EQ(articulation_points(graph, OpSet(graph.ops().size(), true)).size(), 50'000U);
}

// The definition, tried out: is there a way from the first op to an exit that avoids `without`?
bool parts(const Graph& graph, OpId without) {
  const auto is_exit = [&](OpId op) {
    for (const ValueId output : graph.outputs(op)) {
      if (!graph.consumers(output).empty()) return false;
    }
    return true;
  };
  OpSet reached(graph.ops().size(), false);
  std::vector<OpId> stack;
  const auto visit = [&](OpId op) {
    if (op == without || reached[op]) return;
    reached[op] = true;
    stack.push_back(op);
  };
  visit(OpId{0});
  while (!stack.empty()) {
    const OpId op = stack.back();
    stack.pop_back();
    if (is_exit(op)) return false;
    for (const ValueId input : graph.inputs(op)) {
      if (const auto producer = graph.producer(input)) visit(*producer);
    }
    for (const ValueId output : graph.outputs(op)) {
      for (const OpId reader : graph.consumers(output)) visit(reader);
    }
  }
  return true;
}

TEST(ArticulationPoints, MatchTheDefinitionOnRandomGraphs) {
  oracle::Random random(5);
  for (int i = 0; i < 2'000; ++i) {
    const Graph graph = oracle::random_graph(random, {1, 12, 16});
    const OpSet all(graph.ops().size(), true);
    const std::string found = names(graph, articulation_points(graph, all));
    // Where no exit can be reached at all there is nothing to part.
    OpSet expected(graph.ops().size(), false);
    for (const OpId op : graph.ops()) expected[op] = parts(graph, op);
    EXPECT_EQ(found, names(graph, expected)) << "graph " << i;
  }
}

}  // namespace
}  // namespace reprise
