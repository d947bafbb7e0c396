// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/lower_set_text.h"

#include <gtest/gtest.h>

#include "reprise/core/simulator.h"

namespace reprise {
namespace {

using Reads = LowerSetOptions::Reads;

// conv(v0, v2) → v3, relu(v3) → v4, loss(v4, v1) → v5.
const std::string kSmall = R"(6 6
0 64 0
1 16 1
2 40 /net/a/W
3 100 _
4 100 _
5 4 _
forward
2 1
0 _
2 _
3
Convolution2DFunction
{"_input_indexes_to_retain": [0, 1], "_output_indexes_to_retain": null, "rank": 0}
forward
1 1
3 _
4
ReLU
{"_input_indexes_to_retain": null, "_output_indexes_to_retain": [0], "rank": 1}
forward
2 1
4 _
1 _
5
SoftmaxCrossEntropy
{"_input_indexes_to_retain": [0, 1], "_output_indexes_to_retain": null, "rank": 2}
backward
3 2
3 gradient
0 input
2 input
0
2
Convolution2DFunction
{"_input_indexes_to_retain": [0, 1], "_output_indexes_to_retain": null, "rank": 0}
backward
2 1
4 gradient
4 output
3
ReLU
{"_input_indexes_to_retain": null, "_output_indexes_to_retain": [0], "rank": 1}
backward
3 2
5 gradient
4 input
1 input
4
1
SoftmaxCrossEntropy
{"_input_indexes_to_retain": [0, 1], "_output_indexes_to_retain": null, "rank": 2}
)";

Graph read(const std::string& content, const LowerSetOptions& options = {}) {
  return read_lower_set_text(Text{"net.txt", content}, options);
}

std::string message_of(const std::string& content) {
  try {
    read(content);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

std::string ops(const Graph& graph) {
  std::string text;
  for (const OpId op : graph.ops()) text += graph.name(op) + " ";
  return text;
}

TEST(LowerSetText, MakesOpsOfBlocks) {
  const Graph graph = read(kSmall);
  EXPECT_EQ(graph.name(), "net");
  EXPECT_EQ(ops(graph),
            "f0.Convolution2DFunction f1.ReLU f2.SoftmaxCrossEntropy b2.SoftmaxCrossEntropy:g4 "
            "b2.SoftmaxCrossEntropy:sources b1.ReLU:g3 b0.Convolution2DFunction:sources ");
  EXPECT_EQ(graph.base_cost(), Cost{12});  // conv 10, the others 1, backward 0
  const NameIndex names(graph);
  EXPECT_TRUE(graph.resident(*names.value("v2")));
  EXPECT_EQ(graph.bytes(*names.value("g5")), Bytes{0});  // the sink's gradient is free
  EXPECT_EQ(graph.bytes(*names.value("g2")), Bytes{0});  // a source's too
  EXPECT_TRUE(graph.kept(*names.value("g2")));
  EXPECT_EQ(graph.gradient_of(*names.op("b1.ReLU:g3")), names.op("f1.ReLU"));
}

TEST(LowerSetText, GivesThePeakOfPlainTraining) {
  // relu's backward: v4 100, its gradient 100, v3's gradient 100; v3 is not listed.
  EXPECT_EQ(base_peak(read(kSmall)), Bytes{300});
  // The same with the sources' gradients g1 16 there.
  EXPECT_EQ(base_peak(read(kSmall, {.source_gradients = true})), Bytes{316});
}

TEST(LowerSetText, ReadsWhatIsRetainedOnRequest) {
  const std::string nothing_listed =
      replaced(kSmall, "3 2\n5 gradient\n4 input\n1 input\n", "1 2\n5 gradient\n");
  const auto reads = [](const Graph& graph) {
    return graph.inputs(*NameIndex(graph).op("b2.SoftmaxCrossEntropy:g4")).size();
  };
  EXPECT_EQ(reads(read(nothing_listed)), 1U);                              // the gradient
  EXPECT_EQ(reads(read(nothing_listed, {.reads = Reads::retained})), 3U);  // and v4, v1
}

// v0 → f0 → v1, read by f1 and f2; f3 adds their outputs.
const std::string kDiamond = R"(5 8
0 7 x
1 10 _
2 10 _
3 10 _
4 1 _
forward
1 1
0 _
1
A
{}
forward
1 1
1 _
2
B
{}
forward
1 1
1 _
3
C
{}
forward
2 1
2 _
3 _
4
Add
{}
backward
1 1
1 gradient
0
A
{}
backward
1 1
2 gradient
1
B
{}
backward
1 1
3 gradient
1
C
{}
backward
1 2
4 gradient
2
3
Add
{}
)";

TEST(LowerSetText, AddsToAGradientInItsBuffer) {
  const Graph graph = read(kDiamond);
  const NameIndex names(graph);
  EXPECT_EQ(graph.overwritten(*names.value("g1")), names.value("g1~1"));
  EXPECT_EQ(graph.producer(*names.value("g1~1")), names.op("b2.C:g1"));
  EXPECT_EQ(graph.producer(*names.value("g1")), names.op("b1.B:g1"));
  // Forward: v1, v2, v3 = 30, then Add: v2, v3, v4 = 21. Backward: at most g3, g2 and g1~1 = 30.
  EXPECT_EQ(base_peak(graph), Bytes{30});
}

TEST(LowerSetText, OrdersForwardOpsByRankThenBlock) {
  std::string text = replaced(kDiamond, "2\nB\n{}", "2\nB\n{\"rank\": 5}");
  text = replaced(text, "3\nC\n{}", "3\nC\n{\"rank\": 1}");
  EXPECT_EQ(ops(read(text)).rfind("f0.A f2.C f1.B f3.Add b3.Add:g2 b3.Add:g3 b1.B:g1 b2.C:g1", 0),
            0U);
}

TEST(LowerSetText, AcceptsCarriageReturnsBlanksAndAMissingLastNewline) {
  std::string text;
  for (const char c : kSmall) text += c == '\n' ? " \r\n" : std::string(1, c);
  text.resize(text.size() - 3);
  EXPECT_EQ(read(text).fingerprint(), read(kSmall).fingerprint());
  EXPECT_EQ(message_of(kSmall + "\n  \n"), "accepted");
}

TEST(LowerSetText, RefusesWithTheLine) {
  EXPECT_EQ(message_of(kSmall + "more\n"), "net.txt:53: text after the last function");
  EXPECT_EQ(message_of("6 x\n"), "net.txt:1: 'x' is not a whole number");
  EXPECT_EQ(message_of("6\n"), "net.txt:1: '6': want N M, the numbers of variables and functions");
  EXPECT_EQ(message_of("0 3\n"), "net.txt:1: 3 functions: want as many backward as forward ones");
  EXPECT_EQ(message_of("1 0\n"), "net.txt:2: the file ends where a variable should be");
  EXPECT_EQ(message_of(replaced(kSmall, "1 16 1", "2 16 1")),
            "net.txt:3: variable 2 stands where 1 should");
  EXPECT_EQ(message_of(replaced(kSmall, "1 16 1", "1 -16 1")), "net.txt:3: -16 is below zero");
  EXPECT_EQ(message_of(replaced(kSmall, "1 16 1", "1 99999999999999999999 1")),
            "net.txt:3: 99999999999999999999 does not fit into 64 bits");
  EXPECT_EQ(message_of(replaced(kSmall, "0 _\n2 _", "9 _\n2 _")),
            "net.txt:10: there is no variable 9: ids end at 5");
  EXPECT_EQ(message_of(replaced(kSmall, "4\nReLU", "3\nReLU")),
            "net.txt:18: variable 3 has two producers, functions 0 and 1");
  EXPECT_EQ(message_of(replaced(kSmall, "3 _\n4\nReLU", "5 _\n4\nReLU")),
            "net.txt:41: the outputs are not the inputs of the forward function in line 15");
  EXPECT_EQ(message_of(replaced(kSmall, "4 output", "3 output")),
            "net.txt:40: variable 3 is no output of the forward function in line 15");
  EXPECT_EQ(message_of(replaced(kSmall, "4 output\n3\nReLU", "4 output\n3\nTanh")),
            "net.txt:42: type Tanh, but the forward function in line 15 is ReLU");
  EXPECT_EQ(message_of(replaced(kDiamond, "0 _\n1\nA", "4 _\n1\nA")).rfind("net.txt:", 0), 0U);
}

TEST(LowerSetText, NamesACycle) {
  std::string text = replaced(kDiamond, "0 _\n1\nA", "4 _\n1\nA");
  text = replaced(text, "1 gradient\n0\nA", "1 gradient\n4\nA");
  EXPECT_EQ(message_of(text),
            "net.txt:7: the functions form a cycle: 'f0.A' → 'f1.B' → 'f3.Add' → 'f0.A'");
}

TEST(LowerSetText, WhatIsWrittenReadsBackTheSame) {
  for (const std::string& text : {kSmall, kDiamond}) {
    const Graph graph = read(text);
    const std::string written = write_lower_set_text(graph);
    EXPECT_EQ(write_lower_set_text(read(written)), written);
    EXPECT_EQ(base_peak(read(written)), base_peak(graph));
    EXPECT_EQ(base_peak(read(written, {.reads = Reads::retained})), base_peak(graph));
  }
  EXPECT_EQ(read(write_lower_set_text(read(kSmall))).fingerprint(), read(kSmall).fingerprint());
}

TEST(LowerSetText, DoesNotWriteWhatItCannotSay) {
  GraphBuilder no_phases("net");
  no_phases.op("a").makes("a", Bytes{1});
  EXPECT_THROW(write_lower_set_text(no_phases.done()), InputError);
  GraphBuilder two("net");
  auto op = two.op("a");
  op.phase(Phase::forward).makes("a", Bytes{1});
  op.makes("b", Bytes{1});
  EXPECT_THROW(write_lower_set_text(two.done()), InputError);
  GraphBuilder workspace("net");
  workspace.op("a").phase(Phase::forward).workspace(Bytes{1}).makes("a", Bytes{1});
  EXPECT_THROW(write_lower_set_text(workspace.done()), InputError);
  GraphBuilder once("net");
  once.op("a").phase(Phase::forward).never_again().makes("a", Bytes{1});
  EXPECT_THROW(write_lower_set_text(once.done()), InputError);
}

}  // namespace
}  // namespace reprise
