// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/plan_from_kept.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

using Stay = KeptValues::Stay;

KeptValues keep(const Graph& graph, std::initializer_list<std::string_view> names,
                Stay stay = Stay::until_last_use) {
  const NameIndex index(graph);
  KeptValues decision{ValueSet(graph.values().size(), false), {}, stay};
  for (const std::string_view name : names) decision.kept[*index.value(name)] = true;
  return decision;
}

TEST(PlanFromKept, IsTheBaseRunWhenEverythingIsKept) {
  const Graph graph = unit_chain(3);
  EXPECT_EQ(plan_from_kept(graph, keep(graph, {"f0", "f1", "f2"})), base_run(graph));
}

TEST(PlanFromKept, ComputesAgainJustInTimeAndHoldsUntilTheLastUse) {
  const Graph graph = unit_chain(3);
  // b2 misses f2, which needs f1, which needs the kept f0; f1 then stays for b1.
  EXPECT_EQ(words(graph, plan_from_kept(graph, keep(graph, {"f0"}))),
            "f0 f1 f2 -f1 loss -f2 f1 f2 b2 -f2 -loss b1 -f1 -b2 b0 -f0 -b1 -b0");
}

TEST(PlanFromKept, ComputesAgainForEachOpWhereNothingStays) {
  const Graph graph = unit_chain(2);
  EXPECT_EQ(words(graph, plan_from_kept(graph, keep(graph, {}, Stay::for_one_op))),
            "f0 f1 -f0 loss -f1 f0 f1 -f0 b1 -f1 -loss f0 b0 -f0 -b1 -b0");
}

// a → b and a → c, both read by the backward pass; b by the first backward op, c by the second.
Graph fork() {
  GraphBuilder build("fork");
  const ValueId a = build.op("a").phase(Phase::forward).makes("a", Bytes{1});
  const ValueId b = build.op("b").phase(Phase::forward).reads({a}).makes("b", Bytes{1});
  const ValueId c = build.op("c").phase(Phase::forward).reads({a}).makes("c", Bytes{1});
  const ValueId l = build.op("loss").phase(Phase::loss).reads({b, c}).makes("loss", Bytes{1});
  const ValueId g = build.op("gb").phase(Phase::backward).reads({b, l}).makes("gb", Bytes{1});
  build.op("gc").phase(Phase::backward).reads({c, g}).makes("gc", Bytes{1}).kept();
  return build.done();
}

TEST(PlanFromKept, BringsBackAWholeSegmentAtOnce) {
  const Graph graph = fork();
  KeptValues decision = keep(graph, {"a"});
  EXPECT_EQ(words(graph, plan_from_kept(graph, decision)),
            "a b c loss -b -c b gb -b -loss c -a gc -c -gb");
  decision.segments = IdVector<OpId, std::uint32_t>(graph.ops().size(), 0);
  decision.segments[OpId{1}] = decision.segments[OpId{2}] = 1;  // b and c
  EXPECT_EQ(words(graph, plan_from_kept(graph, decision)),
            "a b c loss -b -c b c -a gb -b -loss gc -c -gb");
}

TEST(PlanFromKept, NeverDropsWhatMayNotRunAgainOrTiesAnOrder) {
  GraphBuilder build("random");
  auto first = build.op("dropout1");
  first.phase(Phase::forward).never_again();
  const ValueId mask = first.makes("mask", Bytes{4});
  const ValueId token = first.makes("token", Bytes{0});
  const ValueId h =
      build.op("dropout2").phase(Phase::forward).reads({mask, token}).makes("h", Bytes{4});
  const ValueId l = build.op("loss").phase(Phase::loss).reads({h}).makes("loss", Bytes{1});
  build.op("back").phase(Phase::backward).reads({h, l, mask}).makes("g", Bytes{4}).kept();
  const Graph graph = build.done();
  EXPECT_EQ(words(graph, plan_from_kept(graph, keep(graph, {}))),
            "dropout1 dropout2 loss -h dropout2 -token back -h -loss -mask");
}

// a, loss, back, then a forward op after a backward one, in the same segment as a.
TEST(PlanFromKept, BringsBackOnlyWhatHasRun) {
  GraphBuilder build("astray");
  const ValueId a = build.op("a").phase(Phase::forward).makes("a", Bytes{1});
  build.op("loss").phase(Phase::loss).makes("loss", Bytes{1});
  const ValueId g = build.op("back").phase(Phase::backward).reads({a}).makes("g", Bytes{1});
  const ValueId h =
      build.op("late").phase(Phase::forward).never_again().reads({g}).makes("h", Bytes{1});
  build.op("end").phase(Phase::backward).reads({h});
  const Graph graph = build.done();
  KeptValues decision = keep(graph, {});
  decision.segments = IdVector<OpId, std::uint32_t>(graph.ops().size(), 0);
  EXPECT_EQ(words(graph, plan_from_kept(graph, decision)),
            "a -a loss -loss a back -a late -g end -h");
}

TEST(PlanFromKept, GivesUpWhenTold) {
  const Graph graph = unit_chain(3);
  EXPECT_EQ(
      plan_from_kept(graph, keep(graph, {}), [](OpId op, std::size_t) { return op.index < 4; }),
      std::nullopt);
}

// Whatever is kept, however it is cut into segments, on any graph: right, the order of first runs
// is the program's, and only forward ops run again.
TEST(PlanFromKept, IsRightOnRandomGraphsAndDecisions) {
  oracle::Random random(7);
  int tried = 0;
  while (tried < 2'000) {
    const Graph graph = oracle::random_graph(random, {2, 10, 14});
    if (!graph.has_phases()) continue;
    ++tried;
    KeptValues decision{ValueSet(graph.values().size(), false), {}, Stay::until_last_use};
    for (const ValueId value : graph.values()) decision.kept[value] = random.chance(30);
    if (random.chance(50)) decision.stay = Stay::for_one_op;
    if (random.chance(50)) {
      decision.segments = IdVector<OpId, std::uint32_t>(graph.ops().size(), 0);
      std::uint32_t segment = 0;
      for (const OpId op : graph.ops())
        decision.segments[op] = segment += random.chance(40) ? 1 : 0;
    }
    const Plan plan = plan_from_kept(graph, decision);
    const Verdict verdict = check(graph, plan);
    ASSERT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
    OpSet has_run(graph.ops().size(), false);
    std::uint32_t next = 0;
    for (const Step step : plan.steps) {
      if (step.kind() != StepKind::compute) continue;
      if (has_run[step.op()]) {
        EXPECT_EQ(graph.phase(step.op()), Phase::forward);
      } else {
        EXPECT_EQ(step.op().index, next++);
      }
      has_run[step.op()] = true;
    }
  }
}

}  // namespace
}  // namespace reprise
