// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule.h"

#include <gtest/gtest.h>

#include "tests/runtime/programs.h"

namespace reprise::runtime {
namespace {

TEST(Schedule, RunsAPlanAndHandsOverTheGradient) {
  const ReluOfProduct it;
  EXPECT_EQ(it.build.words(it.build.schedule("h y -h outside h' -y -y' w' -h'")),
            "h -w y -h | h' -y -y' w' -x /w -h'");
}

TEST(Schedule, ComputesAgainWhatThePlanFrees) {
  const ReluOfProduct it;
  EXPECT_EQ(it.build.words(it.build.schedule("h y -h outside -y h y -h h' -y -y' w' -h'")),
            "h y -h | -y h -w y -h h' -y -y' w' -x /w -h'");
}

TEST(Schedule, MarksEachRunButTheFirst) {
  const ReluOfProduct it;
  const Schedule schedule = it.build.schedule("h y -h outside -y h y -h h' -y -y' w' -h'");
  std::string runs;
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind == Instruction::Kind::call) runs += instruction.again ? '2' : '1';
  }
  EXPECT_EQ(runs, "112211");
}

TEST(Schedule, NamesTheStepOfThePlan) {
  const ReluOfProduct it;
  const Schedule schedule = it.build.schedule("h y -h outside h' -y -y' w' -h'");
  std::vector<std::int32_t> steps;
  for (const Instruction& instruction : schedule.instructions) steps.push_back(instruction.step);
  //                                             h -w y -h h' -y -y' w' -x -h'
  EXPECT_EQ(steps, (std::vector<std::int32_t>{0, 0, 1, 2, 4, 5, 6, 7, 7, 8}));
}

// y = tanh(h) · hᵀ with h = exp(x).
struct ProductWithAView {
  ProgramBuilder build;
  Slot x = build.input("x");
  Slot h = build.op("h", "aten::exp", {x});
  Slot t = build.view("t", "aten::t", {h});
  Slot a = build.op("a", "aten::tanh", {h});
  Slot y = build.op("y", "aten::mm", {a, t});
  Slot dy = build.outside(y);
  Slot da = build.op("a'", "aten::mm", {dy, t});

  ProductWithAView() { build.gradient(x, da); }
};

TEST(Schedule, DerivesAViewWhereItIsRead) {
  const ProductWithAView it;
  EXPECT_EQ(it.build.words(it.build.schedule("h a y -a outside a' -h -y'")),
            "h -x a t y -a | a' /x -h -t -y'");
}

TEST(Schedule, DerivesAViewAnewWhereItsValueIs) {
  const ProductWithAView it;
  EXPECT_EQ(it.build.words(it.build.schedule("h a y -a -h outside h a' -h -y'")),
            "h a t y -a -h -t | h -x t a' /x -h -t -y'");
}

TEST(Schedule, DerivesAViewOfAnInputOnce) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot w = build.input("w");
  const Slot t = build.view("t", "aten::t", {w});
  const Slot tt = build.view("tt", "aten::t", {t});
  const Slot dy = build.outside(build.op("y", kMul, {x, tt}));
  build.gradient(x, build.op("x'", kMul, {dy, tt}));
  const Schedule schedule = build.schedule("y outside x' -y'");
  EXPECT_EQ(build.words(schedule), "t -w tt -t y -x | x' -tt /x -y'");
}

TEST(Schedule, DerivesTheViewThatIsAnOutput) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot h = build.op("h", "aten::exp", {x});
  const Slot dt = build.outside(build.view("t", "aten::t", {h}));
  build.gradient(x, build.op("x'", "aten::t_copy", {dt}));
  const Schedule schedule = build.schedule("h outside -h x' -t'");
  EXPECT_EQ(build.words(schedule), "h -x t | -h -t x' /x -t'");
  EXPECT_EQ(build.words(schedule.unneeded), "h t");
}

// h = exp(x), then b = h += 1, and y = b·c where c reads h before or not.
struct Increment {
  ProgramBuilder build;
  Slot x = build.input("x");
  Slot h = build.op("h", "aten::exp", {x});
  Slot b = build.change("b", "aten::add_.Scalar", {h, 1, 1});
  Slot y = build.op("y", kMul, {b, b});
  Slot dy = build.outside(y);
  Slot dx = build.op("x'", kMul, {dy, h});

  Increment() { build.gradient(x, dx); }
};

TEST(Schedule, WritesOverAValueThatIsFreedNext) {
  const Increment it;
  EXPECT_EQ(it.build.words(it.build.schedule("h b -h y -b outside h x' -h -y'")),
            "h h>b b -h y -b | h -x x' /x -h -y'");
}

TEST(Schedule, CopiesAValueThatStays) {
  const Increment it;
  EXPECT_EQ(it.build.words(it.build.schedule("h b y -b outside x' -h -y'")),
            "h -x h+>b b y -b | x' /x -h -y'");
}

TEST(Schedule, CopiesAValueThatIsFreedAfterTheNextOp) {
  const Increment it;
  EXPECT_EQ(it.build.words(it.build.schedule("h b y -h -b outside h x' -h -y'")),
            "h h+>b b y -h -b | h -x x' /x -h -y'");
}

// sort makes values and indices; backward reads both.
struct TwoResults {
  ProgramBuilder build;
  Slot x = build.input("x");
  std::vector<Slot> sorted = build.op("sort", "aten::sort", {x, -1, false}, {"s", "i"});
  Slot v = build.view("v", "aten::t", {sorted[0]});
  Slot y = build.op("y", kMul, {sorted[0], v});
  Slot dy = build.outside(y);
  Slot dx = build.op("x'", "aten::gather", {dy, -1, sorted[1], false});
  Slot z = build.op("z", kMul, {dx, v});

  TwoResults() { build.gradient(x, z); }
};

TEST(Schedule, PutsAsideWhatAnOpMakesASecondTime) {
  const TwoResults it;
  // i comes back, while s and its view v, which are there, stay what they are.
  EXPECT_EQ(it.build.words(it.build.schedule("sort -i y outside sort x' -i -y' z -s -x'")),
            "sort -i v y | (s (v sort -x -s s) v) x' -i -y' z /x -s -v -x'");
}

TEST(Schedule, MakesAnewWhatIsNotThereAtAll) {
  const TwoResults it;
  EXPECT_EQ(it.build.words(it.build.schedule("sort -i y -s outside sort x' -i -y' z -s -x'")),
            "sort -i v y -s -v | sort -x x' -i -y' v z /x -s -v -x'");
}

TEST(Schedule, CopiesWhereTheResultIsPutAside) {
  const Increment it;
  EXPECT_EQ(it.build.words(it.build.schedule("h b y -h outside h b -h h x' -h -b -y'")),
            "h h+>b b y -h | h (b h+>b b -b b) -h h -x x' /x -h -b -y'");
}

TEST(Stages, HandOverAGradientOnceItsParameterIsReadNoMore) {
  const TwoLayers it;
  // b' is made first, but h' still reads b, which whoever receives b' may change.
  EXPECT_EQ(it.build.words(it.build.schedule("h y outside b' -h h' -y' a' -h'")),
            "h -a y | b' -h h' -b /b -y' a' -x /a -h'");
  EXPECT_EQ(it.build.words(it.build.schedule("h y outside h' b' -h -y' a' -h'")),
            "h -a y | h' -b b' /b -h -y' a' -x /a -h'");
}

TEST(Stages, LetGoOfAGradientOnceItIsHandedOver) {
  const TwoLayers it;
  const Schedule schedule = it.build.schedule("h y outside h' b' -h -y' a' -h'");
  ASSERT_EQ(schedule.stages.size(), 3);
  EXPECT_EQ(it.build.words(schedule.stages[0].cleared), "b'");
  EXPECT_EQ(it.build.words(schedule.stages[1].cleared), "a'");
  EXPECT_EQ(schedule.stages[2].end, schedule.instructions.size());
}

TEST(Stages, BeginWhereTheOneBeforeEnds) {
  const TwoLayers it;
  const Schedule schedule = it.build.schedule("h y outside h' b' -h -y' a' -h'");
  ASSERT_EQ(schedule.stages.size(), 3);  // h -a y | h' -b b' /b -h -y' a' -x /a -h'
  EXPECT_EQ(schedule.stages[0].begin, schedule.forward_end);
  EXPECT_EQ(schedule.stages[1].begin, schedule.stages[0].end);
  EXPECT_EQ(schedule.stages[2].begin, schedule.stages[1].end);
}

TEST(Stages, KeepAGradientThatThePlanFreesTooEarly) {
  const TwoLayers it;
  EXPECT_EQ(it.build.words(it.build.schedule("h y outside b' -h -b' h' -y' a' -h' -a'")),
            "h -a y | b' -h h' -b /b -y' a' -x /a -h'");
}

TEST(Stages, HandOverAGradientOnceItIsReadNoMore) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot w = build.input("w");
  const Slot dy = build.outside(build.op("y", kMul, {x, w}));
  const Slot dw = build.op("w'", kMul, {dy, x});
  build.gradient(w, dw);
  build.gradient(x, build.op("x'", "aten::exp", {dw}));
  EXPECT_EQ(build.words(build.schedule("y outside w' -y' x'")), "y -w | w' -x -y' x' /x /w");
}

TEST(Stages, HandOverASumOnceItIsWhole) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot w = build.input("w");
  const Slot dy = build.outside(build.op("y", kMul, {x, w}));
  const Slot first = build.op("g", kMul, {dy, x});
  const Slot whole = build.change("w'", "aten::add_.Tensor", {first, dy, 1});
  build.gradient(w, whole);
  build.gradient(x, build.op("x'", kMul, {dy, w}));
  EXPECT_EQ(build.words(build.schedule("y outside g x' w' -g -y'")),
            "y | g -x x' -w /x g>w' w' /w -g -y'");
}

TEST(Stages, DeriveTheViewThatIsAGradient) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot dy = build.outside(build.op("y", "aten::exp", {x}));
  build.gradient(x, build.view("t", "aten::t", {build.op("g", "aten::exp", {dy})}));
  const Schedule schedule = build.schedule("y outside g -y'");
  EXPECT_EQ(build.words(schedule), "y -x | g t /x -y'");
  EXPECT_EQ(build.words(schedule.stages[0].cleared), "g t");
}

// The gradient of a and of b is the same. b is read once more after it is made.
TEST(Stages, HandOverAGradientOfTwoInputsToBoth) {
  ProgramBuilder build;
  const Slot a = build.input("a");
  const Slot b = build.input("b");
  const Slot x = build.input("x");
  const Slot dy = build.outside(build.op("y", "aten::add.Tensor", {a, b, 1}));
  const Slot g = build.op("g", "aten::exp", {dy});
  build.gradient(a, g);
  build.gradient(b, g);
  build.gradient(x, build.op("x'", kMul, {dy, b}));
  const Schedule schedule = build.schedule("y outside g -g x' -y'");
  EXPECT_EQ(build.words(schedule), "y -a | g /a x' -b /b /x -y'");
  EXPECT_EQ(build.words(schedule.stages[0].cleared), "");
  EXPECT_EQ(build.words(schedule.stages[1].cleared), "g x'");
}

TEST(Stages, HandOverAnInputAsAGradientOnceItIsWritten) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot buffer = build.input("buffer");
  const Slot dy = build.outside(build.op("y", "aten::exp", {x}));
  build.change("fill", "aten::copy_", {buffer, dy, false});
  build.gradient(x, buffer);
  EXPECT_EQ(build.words(build.schedule("y outside fill -y'")), "y -x | fill /x -y'");
}

TEST(Stages, HandOverAGradientThatForwardMade) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  build.gradient(x, build.op("sign", "aten::sign", {x}));
  build.outside(build.op("y", "aten::exp", {x}));
  EXPECT_EQ(build.words(build.schedule("sign -sign y outside -y'")), "sign y -x | /x -y'");
}

// y = tanh(m), where m is the largest of x along its columns and lies at i: x gathered at i is m.
struct TanhOfLargest {
  ProgramBuilder build;
  Slot x = build.input("x");
  std::vector<Slot> largest = build.op("largest", "aten::max.dim", {x, 0, false}, {"m", "i"});
  CallId call = build.last_call_id();
  Slot m = largest[0];
  Slot i = largest[1];

  TanhOfLargest() {
    build.renewal("gathered", "aten::gather", {x, 0, i, false});
    const Slot y = build.op("y", "aten::tanh", {m});
    const Slot dm = build.op("m'", "aten::tanh_backward", {build.outside(y), y});
    build.gradient(x, build.op("x'", "aten::add.Tensor", {dm, m, 1}));
  }
};

TEST(Renewals, RunInPlaceOfWhatHasRunFromWhatItMadeBesides) {
  const TanhOfLargest it;
  const std::string plan = "largest -i y -m outside m' -y -y' largest -i x' -m -m'";
  EXPECT_EQ(it.build.words(it.build.schedule(plan)),
            "largest -i y -m | m' -y -y' largest -x -i x' /x -m -m'");
  EXPECT_EQ(it.build.words(it.build.schedule(plan, {.renewed = {it.call}})),
            "largest y -m | m' -y -y' gathered -x -i x' /x -m -m'");
}

TEST(Renewals, AreRefusedWhereThereIsNone) {
  const TanhOfLargest it;
  EXPECT_THROW(it.build.schedule("largest y outside m' x'", {.renewed = {it.call + 1}}),
               std::invalid_argument);
}

TEST(Renewals, KeepNothingWhereNothingRunsAgain) {
  const TanhOfLargest it;
  EXPECT_EQ(it.build.words(it.build.schedule("largest -i y outside m' -y -y' x' -m -m'",
                                             {.renewed = {it.call}})),
            "largest -x -i y | m' -y -y' x' /x -m -m'");
}

void expect_refused(const ProgramBuilder& build, const std::string& plan, const std::string& why) {
  try {
    build.schedule(plan);
    ADD_FAILURE() << "was not refused: " << plan;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), why) << plan;
  }
}

TEST(WrongPlans, AreRefused) {
  const ReluOfProduct it;
  expect_refused(it.build, "y outside", "step 0 of a plan reads value 0, which is not there");
  expect_refused(it.build, "h -h y outside", "step 2 of a plan reads value 0, which is not there");
  expect_refused(it.build, "h outside", "step 1 of a plan reads value 1, which is not there");
  expect_refused(it.build, "h y", "a plan leaves forward 0 times");
  expect_refused(it.build, "h y outside outside", "a plan leaves forward 2 times");
  expect_refused(it.build, "h y outside h'", "a plan never makes the gradient of input 1");
}

TEST(WrongPlans, OfAnotherProgramAreRefused) {
  const ReluOfProduct it;
  const auto program = std::make_shared<Program>(it.build.program());
  EXPECT_THROW(make_schedule(program, std::vector<std::int32_t>{0, 1, 2, 5}),
               std::invalid_argument);
  EXPECT_THROW(make_schedule(program, std::vector<std::int32_t>{0, ~5}), std::invalid_argument);
}

}  // namespace
}  // namespace reprise::runtime
