// SPDX-License-Identifier: Apache-2.0
#include "runtime/residents.h"

#include <gtest/gtest.h>

#include <utility>

#include "runtime/schedule.h"
#include "tests/runtime/programs.h"

namespace reprise::runtime {
namespace {

TEST(Outputs, AreNotHeldWhereBackwardDoesNotReadThem) {
  const TwoLayers it;
  const Schedule schedule = it.build.schedule("h y outside h' b' -h -y' a' -h'");
  EXPECT_EQ(it.build.words(schedule.unneeded), "y");
}

TEST(Outputs, AreHeldAndGuardedWhereBackwardReadsThem) {
  const ReluOfProduct it;
  const Schedule schedule = it.build.schedule("h y -h outside h' -y -y' w' -h'");
  EXPECT_EQ(it.build.words(schedule.unneeded), "");
  EXPECT_EQ(it.build.words(schedule.guarded_outputs), "y");
}

TEST(Outputs, ThatAreGradientsAreHeldAndGuarded) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot w = build.input("w");
  const Slot sign = build.op("sign", "aten::sign", {x});
  const Slot y = build.op("y", "aten::exp", {x});
  build.outside({sign, w, y}, {false, false, true});
  build.gradient(x, sign);
  build.gradient(w, w);
  const Schedule schedule = build.schedule("sign y outside -y'");
  EXPECT_EQ(build.words(schedule), "sign y -x | /x /w -y'");
  EXPECT_EQ(build.words(schedule.unneeded), "y");
  EXPECT_EQ(build.words(schedule.guarded_outputs), "sign");
  EXPECT_EQ(schedule.read_by_backward, std::vector<std::int32_t>{1});
}

TEST(Outputs, ThatAreInputsAreNotClearedBeforeTheyAreHandedOut) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot y = build.op("y", "aten::exp", {x});
  const std::vector<Slot> tangents = build.outside({x, y}, {false, true});
  build.gradient(x, build.op("x'", "aten::exp", {tangents[0]}));
  const Schedule schedule = build.schedule("y outside x'");
  EXPECT_EQ(build.words(schedule), "y | x' /x");
  EXPECT_EQ(build.words(schedule.unneeded), "x y");
}

// "x w"
std::string inputs(const ProgramBuilder& build, const std::vector<std::int32_t>& all) {
  std::vector<SlotId> slots;
  for (const std::int32_t input : all) slots.push_back(build.program().inputs[at(input)]);
  return build.words(slots);
}

TEST(Inputs, AreGuardedWhereBackwardReadsThem) {
  const ReluOfProduct it;  // plain backward reads x, recomputation of h also w
  const Schedule plain = it.build.schedule("h y -h outside h' -y -y' w' -h'");
  EXPECT_EQ(inputs(it.build, plain.read_by_backward), "x");
  const Schedule again = it.build.schedule("h y -h outside -y h y -h h' -y -y' w' -h'");
  EXPECT_EQ(inputs(it.build, again.read_by_backward), "x w");
  EXPECT_EQ(inputs(it.build, plain.read_by_forward), "x w");
}

TEST(Inputs, AreNotGuardedWhereTheirBytesDoNotMatter) {
  ReluOfProduct it;
  it.build.last_call().unread = {1};  // x
  const Schedule schedule = it.build.schedule("h y -h outside h' -y -y' w' -h'");
  EXPECT_EQ(inputs(it.build, schedule.read_by_backward), "");
}

TEST(Inputs, AreGuardedWhereBackwardReadsAViewOfThem) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot w = build.input("w");
  const Slot t = build.view("t", "aten::t", {w});
  const Slot dy = build.outside(build.op("y", kMul, {x, t}));
  build.gradient(x, build.op("x'", kMul, {dy, t}));
  EXPECT_EQ(inputs(build, build.schedule("y outside x' -y'").read_by_backward), "w");
}

TEST(Inputs, ThatForwardChangesAreNotAmongThoseThatItReads) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot count = build.input("count");
  const Slot state = build.input("state");
  build.change("counted", "aten::add_.Scalar", {count, 1, 1});
  const Slot y = build.op("y", kMul, {x, state});
  build.change("changed", "aten::mul_.Tensor", {state, x});
  build.program().remembered = {state.id};
  build.gradient(x, build.op("x'", "aten::neg", {build.outside(y)}));
  const Schedule schedule = build.schedule("counted y changed outside x' -y'");
  EXPECT_EQ(inputs(build, schedule.read_by_forward), "x");
}

TEST(ChangedInputs, AreThoseThatForwardWritesTo) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot mean = build.input("mean");
  build.change("count", "aten::add_.Tensor", {mean, x});
  const Slot y = build.op("y", kMul, {x, x});
  const Slot dy = build.outside(y);
  build.gradient(x, build.op("x'", kMul, {dy, x}));
  EXPECT_EQ(changed_inputs(build.schedule("count y outside x'")), std::vector<std::int32_t>{1});
}

TEST(ChangedByBackward, AreNotGuarded) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot count = build.input("count");
  const Slot dy = build.outside(build.op("y", kMul, {x, count}));
  build.change("count'", "aten::add_.Tensor", {count, x});
  build.gradient(x, build.op("x'", kMul, {dy, count}));
  const Schedule schedule = build.schedule("y outside count' x' -y'");
  EXPECT_EQ(changed_by_backward(schedule), std::vector<std::int32_t>{1});
  EXPECT_EQ(inputs(build, schedule.read_by_backward), "x");
}

TEST(CountedInputs, AreThoseWhoseVersionsEagerMoves) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot mean = build.input("mean");
  build.change("statistics", "aten::add_.Tensor", {mean, x});
  build.last_call().scratch = std::exchange(build.last_call().bumped, {});
  build.change("change", "aten::add_.Tensor", {x, x});
  const Slot y = build.op("y", kMul, {x, x});
  build.gradient(x, build.op("x'", kMul, {build.outside(y), x}));
  const Schedule schedule = build.schedule("statistics change y outside x'");
  EXPECT_EQ(changed_inputs(schedule), (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(counted_inputs(schedule), std::vector<std::int32_t>{0});
}

}  // namespace
}  // namespace reprise::runtime
