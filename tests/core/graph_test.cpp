// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/graph.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

namespace reprise {
namespace {

Graph tiny() {
  GraphBuilder build("tiny", CostUnit::ns);
  const ValueId x = build.resident("x", Bytes{4096});
  const ValueId h =
      build.op("conv").cost(Cost{120}).workspace(Bytes{512}).reads({x}).makes("h", Bytes{8192});
  build.op("relu").cost(Cost{10}).reads({h, h}).makes("y", Bytes{8192}).over(h).kept();
  return build.done();
}

TEST(Graph, AnswersWhatItWasBuiltWith) {
  const Graph graph = tiny();
  const NameIndex names(graph);
  const OpId conv = *names.op("conv");
  const OpId relu = *names.op("relu");
  const ValueId x = *names.value("x");
  const ValueId h = *names.value("h");
  const ValueId y = *names.value("y");

  EXPECT_EQ(graph.ops().size(), 2U);
  EXPECT_EQ(graph.values().size(), 3U);
  EXPECT_FALSE(graph.has_phases());
  EXPECT_TRUE(graph.resident(x));
  EXPECT_EQ(graph.producer(x), std::nullopt);
  EXPECT_EQ(graph.producer(h), conv);
  EXPECT_EQ(graph.inputs(relu).size(), 1U);  // named twice, counts once
  EXPECT_EQ(graph.consumers(h).size(), 1U);
  EXPECT_EQ(graph.consumers(h)[0], relu);
  EXPECT_EQ(graph.overwritten(y), h);
  EXPECT_EQ(graph.overwritten(h), std::nullopt);
  EXPECT_TRUE(graph.kept(y));
  EXPECT_EQ(graph.base_cost(), Cost{130});
  EXPECT_EQ(graph.resident_bytes(), Bytes{4096});
  EXPECT_EQ(names.op("h"), std::nullopt);
}

TEST(Graph, FingerprintTellsWhatPlansDependOn) {
  const std::string print = tiny().fingerprint();
  EXPECT_EQ(print.size(), 16U);
  EXPECT_EQ(print, tiny().fingerprint());

  const auto variant = [](std::string op, std::int64_t bytes, std::int64_t cost, bool over) {
    GraphBuilder build("other name");
    const ValueId x = build.resident("x", Bytes{4096});
    const ValueId h = build.op(std::move(op))
                          .cost(Cost{cost})
                          .workspace(Bytes{512})
                          .reads({x})
                          .makes("h", Bytes{bytes});
    auto y = build.op("relu").cost(Cost{10}).reads({h}).makes("y", Bytes{bytes});
    if (over) y.over(h);
    return build.done().fingerprint();
  };
  EXPECT_EQ(variant("conv", 8192, 7, true), print);  // cost, name, kept: not told apart
  EXPECT_NE(variant("conv2", 8192, 120, true), print);
  EXPECT_NE(variant("conv", 8191, 120, true), print);
  EXPECT_NE(variant("conv", 8192, 120, false), print);
}

TEST(Graph, PinsAskMoreOfAPlan) {
  const Graph graph = tiny();
  const NameIndex names(graph);
  const Graph pinned = graph.pinned(std::array{*names.value("h")}, std::array{*names.op("conv")});
  EXPECT_TRUE(pinned.kept(*names.value("h")));
  EXPECT_FALSE(pinned.recomputable(*names.op("conv")));
  EXPECT_TRUE(pinned.recomputable(*names.op("relu")));
  EXPECT_EQ(pinned.fingerprint(), graph.fingerprint());
}

struct Refusal {
  const char* name;
  const char* message;  // a part of it
  std::function<void(GraphBuilder&)> build;
};

class GraphBuilderRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(GraphBuilderRefuses, WithTheNameAndTheRule) {
  GraphBuilder build("bad");
  try {
    GetParam().build(build);
    build.done();
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos)
        << error.what();
  }
}

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

INSTANTIATE_TEST_SUITE_P(
    Model, GraphBuilderRefuses,
    testing::Values(
        Refusal{"EmptyName", "the name is empty", [](GraphBuilder& b) { b.op(""); }},
        Refusal{"ControlCharacter", "control character", [](GraphBuilder& b) { b.op("a\nb"); }},
        Refusal{"OpNameTwice", "op 'a': the name 'a' is taken",
                [](GraphBuilder& b) {
                  b.op("a");
                  b.op("a");
                }},
        Refusal{"ValueNameTwice", "value 'v': the name 'v' is taken",
                [](GraphBuilder& b) {
                  b.resident("v", Bytes{1});
                  b.resident("v", Bytes{1});
                }},
        Refusal{"NegativeBytes", "-1 bytes", [](GraphBuilder& b) { b.resident("v", Bytes{-1}); }},
        Refusal{"NegativeCost", "cost -1", [](GraphBuilder& b) { b.op("a").cost(Cost{-1}); }},
        Refusal{"NegativeWorkspace", "-1 bytes",
                [](GraphBuilder& b) { b.op("a").workspace(Bytes{-1}); }},
        Refusal{"NoProducer", "value 'v': no op makes it",
                [](GraphBuilder& b) { b.value("v", Bytes{1}); }},
        Refusal{"TwoProducers", "op 'b': makes 'v', which 'a' makes already",
                [](GraphBuilder& b) {
                  const ValueId v = b.op("a").makes("v", Bytes{1});
                  b.op("b").makes(v);
                }},
        Refusal{"ResidentMade", "which is resident",
                [](GraphBuilder& b) { b.op("a").makes(b.resident("v", Bytes{1})); }},
        Refusal{"ReadTooEarly", "reads 'v' before 'b' makes it",
                [](GraphBuilder& b) {
                  const ValueId v = b.value("v", Bytes{1});
                  b.op("a").reads({v});
                  b.op("b").makes(v);
                }},
        Refusal{"Cycle", "is in a cycle: 'a' → 'b' → 'a'",
                [](GraphBuilder& b) {
                  const ValueId v = b.value("v", Bytes{1});
                  const ValueId w = b.op("a").reads({v}).makes("w", Bytes{1});
                  b.op("b").reads({w}).makes(v);
                }},
        Refusal{"SomePhases", "op 'b': has no phase",
                [](GraphBuilder& b) {
                  b.op("a").phase(Phase::forward);
                  b.op("b");
                }},
        Refusal{"GradientOfLater", "has to stand before it",
                [](GraphBuilder& b) { b.op("a").gradient_of(OpId{0}); }},
        Refusal{"OverwriteUnequal", "they have 2 B and 1 B",
                [](GraphBuilder& b) {
                  const ValueId v = b.op("a").makes("v", Bytes{1});
                  b.op("b").reads({v}).makes("w", Bytes{2}).over(v);
                }},
        Refusal{"OverwriteResident", "the second is resident",
                [](GraphBuilder& b) {
                  const ValueId v = b.resident("v", Bytes{1});
                  b.op("b").reads({v}).makes("w", Bytes{1}).over(v);
                }},
        Refusal{"OverwriteTwice", "another output does so already",
                [](GraphBuilder& b) {
                  const ValueId v = b.op("a").makes("v", Bytes{1});
                  auto op = b.op("b");
                  op.reads({v});
                  op.makes("w", Bytes{1}).over(v);
                  op.makes("x", Bytes{1}).over(v);
                }},
        Refusal{"OverwriteOfNoInput", "not an input of the op",
                [](GraphBuilder& b) {
                  const ValueId v = b.op("a").makes("v", Bytes{1});
                  b.op("b").makes("w", Bytes{1}).over(v);
                }},
        Refusal{"TooManyBytes", "bytes add up to more than",
                [](GraphBuilder& b) {
                  b.resident("v", Bytes{kHuge});
                  b.resident("w", Bytes{1});
                }},
        Refusal{"TooMuchCost", "costs add up to more than",
                [](GraphBuilder& b) {
                  b.op("a").cost(Cost{kHuge});
                  b.op("b").cost(Cost{1});
                }}),
    [](const auto& refusal) { return refusal.param.name; });

TEST(GraphBuilder, StaysLinearInTheInputsOfOneOp) {
  GraphBuilder build("wide");
  std::vector<ValueId> values;
  for (int i = 0; i < 200'000; ++i) values.push_back(build.resident("v" + std::to_string(i), {}));
  build.op("all").reads(values).reads(values);
  EXPECT_EQ(build.done().inputs(OpId{0}).size(), values.size());
}

}  // namespace
}  // namespace reprise
