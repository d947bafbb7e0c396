// SPDX-License-Identifier: Apache-2.0
// Bounds that hold for any plan: flows, cuts at a moment, whole values.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "reprise/core/simulator.h"
#include "reprise/solvers/bounds/max_flow.h"
#include "reprise/solvers/bounds/moment.h"
#include "reprise/solvers/bounds/proof.h"
#include "reprise/solvers/bounds/whole.h"
#include "tests/core/graphs.h"
#include "tests/oracle/exhaustive.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

bool never_stop() { return false; }

TEST(MaxFlow, EqualsTheSmallestOfAllCuts) {
  oracle::Random random(1);
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t nodes = 2 + random.below(6);
    struct Arc {
      std::uint32_t from, to;
      std::int64_t capacity;
    };
    std::vector<Arc> arcs;
    MaxFlow flow(nodes);
    for (std::uint32_t k = random.below(3 * nodes); k > 0; --k) {
      const Arc arc{random.below(nodes), random.below(nodes), random.between(0, 9)};
      if (arc.from == arc.to) continue;
      arcs.push_back(arc);
      flow.add(arc.from, arc.to, arc.capacity);
    }
    std::int64_t smallest = INT64_MAX;
    for (std::uint32_t side = 0; side < 1U << nodes; ++side) {
      if ((side & 1) == 0 || (side & 2) != 0) continue;  // 0 is the source, 1 the sink
      std::int64_t cut = 0;
      for (const Arc& arc : arcs) {
        if ((side >> arc.from & 1) != 0 && (side >> arc.to & 1) == 0) cut += arc.capacity;
      }
      smallest = std::min(smallest, cut);
    }
    EXPECT_EQ(flow.run(0, 1), smallest) << "network " << i;
    EXPECT_EQ(flow.run(0, 1), smallest) << "run again";
    flow.clear_flow();
    EXPECT_EQ(flow.run(0, 1), smallest) << "from nothing";
    std::int64_t cut = 0;
    for (const Arc& arc : arcs) {
      if (flow.with_source(arc.from) && !flow.with_source(arc.to)) cut += arc.capacity;
    }
    EXPECT_EQ(cut, smallest);
  }
}

// A chain a → b → c → d, and e reads what a and d made: while c runs, va is needed later.
Graph three_needed() {
  GraphBuilder build("three needed");
  const ValueId x = build.resident("x", Bytes{1});
  const ValueId a = build.op("a").cost(Cost{5}).reads({x}).makes("va", Bytes{4});
  const ValueId b = build.op("b").cost(Cost{2}).reads({a}).makes("vb", Bytes{4});
  const ValueId c = build.op("c").cost(Cost{1}).reads({b}).makes("vc", Bytes{4});
  const ValueId d = build.op("d").cost(Cost{1}).reads({c}).makes("vd", Bytes{4});
  build.op("e").cost(Cost{1}).reads({a, d}).makes("ve", Bytes{1}).kept();
  return build.done();
}

TEST(MomentCuts, ChooseBetweenKeepingAndRunningAgain) {
  const Graph graph = three_needed();
  MomentCuts cuts(graph, moment_of(graph, OpId{2}));  // while c runs: vb 4, vc 4
  EXPECT_EQ(cuts.all(), Bytes{4});                    // va, for e
  const auto room = cuts.best(Bytes{4});
  ASSERT_TRUE(room);
  EXPECT_EQ(room->cost, Cost{0});
  const auto none = cuts.best(Bytes{3});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->cost, Cost{5});  // a runs again
  EXPECT_EQ(none->inside.bytes, Bytes{0});
  EXPECT_TRUE(none->inside.again[OpId{0}]);
}

TEST(MomentCuts, KeepWhatMayNotRunAgain) {
  const Graph graph = three_needed().pinned({}, std::vector{OpId{0}});
  MomentCuts cuts(graph, moment_of(graph, OpId{2}));
  EXPECT_EQ(cuts.least(), Bytes{4});
  EXPECT_FALSE(cuts.best(Bytes{3}));
}

// The cheapest choice at a moment by trying all sets of ops that run after it.
std::optional<Cost> by_brute_force(const Graph& graph, const Moment& moment, Bytes room) {
  using When = Moment::When;
  std::vector<OpId> others;
  for (const OpId op : graph.ops()) {
    if (op != moment.op && moment.first_run[op] != When::after) others.push_back(op);
  }
  ValueSet there(graph.values().size(), false);
  for (const ValueId value : graph.values()) there[value] = graph.resident(value);
  for (const ValueId input : graph.inputs(moment.op)) there[input] = true;
  for (const ValueId output : graph.outputs(moment.op)) {
    there[output] = true;
    if (const auto input = graph.overwritten(output)) there[*input] = false;
  }
  std::optional<Cost> cheapest;
  for (std::uint32_t set = 0; set < 1U << others.size(); ++set) {
    OpSet runs(graph.ops().size(), false);
    Cost cost;
    bool possible = true;
    for (std::size_t i = 0; i < others.size(); ++i) {
      if ((set >> i & 1) == 0) continue;
      runs[others[i]] = true;
      if (moment.first_run[others[i]] != When::before) continue;
      cost += graph.cost(others[i]);
      possible = possible && graph.recomputable(others[i]);
    }
    ValueSet needed(graph.values().size(), false);
    for (const OpId op : graph.ops()) {
      if (op == moment.op || !(runs[op] || moment.first_run[op] == When::after)) continue;
      for (const ValueId input : graph.inputs(op)) needed[input] = true;
    }
    Bytes kept;
    for (const ValueId value : graph.values()) {
      if (!(needed[value] || graph.kept(value)) || there[value]) continue;
      const OpId producer = *graph.producer(value);
      const bool made =
          runs[producer] || (producer != moment.op && moment.first_run[producer] == When::after);
      if (!made) kept += graph.bytes(value);
    }
    if (possible && kept <= room && (!cheapest || cost < *cheapest)) cheapest = cost;
  }
  return cheapest;
}

TEST(MomentCuts, BoundAndSolveEveryMomentAsBruteForceDoes) {
  oracle::Random random(2);
  int bound_below = 0;
  int infeasible = 0;
  for (int i = 0; i < 400; ++i) {
    const Graph graph = oracle::random_graph(random, {4, 9, 12});
    for (const OpId op : graph.ops()) {
      const Moment moment = moment_of(graph, op);
      MomentCuts cuts(graph, moment);
      for (const std::int64_t room : {0, 3, 7, 15}) {
        SCOPED_TRACE(testing::Message() << "graph " << i << ", op " << op.index << ", " << room);
        const auto exact = by_brute_force(graph, moment, Bytes{room});
        const auto bound = cuts.best(Bytes{room});
        ASSERT_EQ(exact.has_value(), bound.has_value());
        if (!exact) {
          ++infeasible;
          EXPECT_GT(cuts.least(), Bytes{room});
          continue;
        }
        EXPECT_LE(bound->cost, *exact);
        EXPECT_GE(bound->inside.cost, *exact);
        EXPECT_LE(bound->inside.bytes, Bytes{room});
        bound_below += bound->cost < *exact ? 1 : 0;
        const Whole whole = solve_whole(cuts, Bytes{room}, 1000, never_stop);
        EXPECT_TRUE(whole.solved);
        EXPECT_EQ(whole.cost, *exact);
        EXPECT_LE(solve_whole(cuts, Bytes{room}, 1, never_stop).cost, *exact);
      }
    }
    if (HasFailure()) FAIL();
  }
  EXPECT_GT(bound_below, 50) << "nothing for whole values to add";
  EXPECT_GT(infeasible, 50);
}

TEST(Proof, NeverPassesTheOptimum) {
  oracle::Random random(3);
  int tight = 0;
  int infeasible = 0;
  for (int i = 0; i < 400; ++i) {
    const Graph graph = oracle::random_graph(random, {5, 8, 9});
    const Bytes least = oracle::smallest_peak(graph);
    for (const Bytes budget : {least - Bytes{1}, least, least + Bytes{2}, least + Bytes{6}}) {
      SCOPED_TRACE(testing::Message() << "graph " << i << ", " << budget.count() << " bytes");
      if (budget < smallest_peak_bound(graph).bytes) continue;
      const auto best = oracle::cheapest_plan(graph, budget);
      Proof proof(graph, budget, {});
      std::optional<PlanOrder> known;
      if (best && random.chance(50)) known = plan_order(graph, best->plan);
      const PlanOrder* const plan = known ? &*known : nullptr;
      for (int round = 0; round < 3; ++round) proof.go_on(plan, plan, never_stop);
      if (best) {
        EXPECT_FALSE(proof.peak());
        EXPECT_LE(graph.base_cost() + proof.extra(), best->cost);
        tight += graph.base_cost() + proof.extra() == best->cost ? 1 : 0;
      } else if (proof.peak()) {
        ++infeasible;
        EXPECT_LE(proof.peak()->bytes, least);
      }
    }
    if (HasFailure()) FAIL();
  }
  EXPECT_GT(tight, 300);
  EXPECT_GT(infeasible, 0);
}

}  // namespace
}  // namespace reprise
