// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule.h"

#include <gtest/gtest.h>

#include "tests/runtime/programs.h"

namespace reprise::runtime {
namespace {

constexpr auto kMul = "aten::mul.Tensor";

// y = relu(xw), and the gradient of w: y' where y > 0, times x.
struct ReluOfProduct {
  ProgramBuilder build;
  Slot x = build.input("x");
  Slot w = build.input("w");
  Slot h = build.op("h", kMul, {x, w});
  Slot y = build.op("y", "aten::relu", {h});
  Slot dy = build.outside(y);
  Slot dh = build.op("h'", "aten::threshold_backward", {dy, y, 0});
  Slot dw = build.op("w'", kMul, {dh, x});

  ReluOfProduct() { build.gradient(w, dw); }
};

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

// Layers y = x·a·b, whose gradients are made b first.
struct TwoLayers {
  ProgramBuilder build;
  Slot x = build.input("x");
  Slot a = build.input("a");
  Slot b = build.input("b");
  Slot h = build.op("h", kMul, {x, a});
  Slot y = build.op("y", kMul, {h, b});
  Slot dy = build.outside(y);
  Slot db = build.op("b'", kMul, {dy, h});
  Slot dh = build.op("h'", kMul, {dy, b});
  Slot da = build.op("a'", kMul, {dh, x});

  TwoLayers() {
    build.gradient(a, da);
    build.gradient(b, db);
  }
};

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

// y = dropout(x), whose backward reads the mask.
struct Dropout {
  ProgramBuilder build;
  Slot x = build.input("x");
  std::vector<Slot> drop;
  CallId call = kNone;
  Slot dy;

  Dropout() {
    drop = build.op("drop", "aten::native_dropout", {x, 0.5, true}, {"y", "mask"});
    build.last_call().random = true;
    call = build.last_call_id();
    dy = build.outside(drop[0]);
    build.gradient(x, build.op("x'", kMul, {dy, drop[1]}));
  }
};

// "s" saves the generator's state, "r" replays, by run of a call.
std::string random_flags(const Schedule& schedule) {
  std::string flags;
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind != Instruction::Kind::call ||
        !schedule.program->calls[at(instruction.call)].random) {
      continue;
    }
    if (!flags.empty()) flags += ' ';
    flags += instruction.save_random ? 's' : '-';
    flags += instruction.replay_random ? 'r' : '-';
  }
  return flags;
}

TEST(RandomState, IsNotSavedForACallThatRunsOnce) {
  const Dropout it;
  const Schedule schedule = it.build.schedule("drop outside x' -mask");
  EXPECT_EQ(random_flags(schedule), "--");
  EXPECT_EQ(schedule.random, std::vector<c10::Device>{c10::kCPU});
}

TEST(RandomState, IsSavedByTheFirstRunAndReplayedByTheOthers) {
  const Dropout it;
  EXPECT_EQ(random_flags(it.build.schedule("drop -mask outside drop -mask drop x' -mask")),
            "s- -r -r");
}

TEST(RandomState, IsReplayedByTheCallThatDrawsAsAnotherDid) {
  Dropout it;
  it.build.op("drop2", "aten::native_dropout", {it.x, 0.5, true}, {"y2", "mask2"});
  it.build.last_call().random = true;
  it.build.last_call().replays = it.call;
  EXPECT_EQ(random_flags(it.build.schedule("drop outside drop2 -mask2 -y2 x' -mask")), "s- -r");
}

TEST(RandomState, IsOfNoDeviceWhereNothingDraws) {
  const ReluOfProduct it;
  EXPECT_TRUE(it.build.schedule("h y -h outside h' -y -y' w' -h'").random.empty());
}

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

// Three draws, each of which its own op reads.
struct ThreeDraws {
  ProgramBuilder build;
  Slot x = build.input("x");
  Slot a = draw("a");
  Slot b = draw("b");
  Slot c = draw("c");
  Slot y = build.op("y", kMul, {c, x});
  Slot dy = build.outside(y);
  Slot da = build.op("a'", kMul, {dy, a});
  Slot db = build.op("b'", kMul, {da, b});
  Slot dx = build.op("x'", kMul, {db, c});

  ThreeDraws() { build.gradient(x, dx); }

  Slot draw(const std::string& name) {
    const Slot made = build.op(name, "aten::rand_like", {x});
    build.last_call().random = true;
    return made;
  }
};

TEST(RandomTurns, CountHowOftenDrawsGoBack) {
  const ThreeDraws it;
  const auto turns = [&](const std::string& plan) {
    const Schedule schedule = it.build.schedule(plan);
    return random_turns(schedule, schedule.forward_end, schedule.instructions.size());
  };
  EXPECT_EQ(turns("a b c y outside a' b' x'"), 0);
  EXPECT_EQ(turns("a b -a -b c y outside -c a b c a' b' x'"), 1);
  EXPECT_EQ(turns("a b -a -b c y outside -c c a b a' b' x'"), 2);
  EXPECT_EQ(turns("a b -a -b c y outside -c c b a a' b' x'"), 3);
  EXPECT_EQ(turns("a b -a c y outside a a' -a b' -b b x'"), 1);
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

}  // namespace
}  // namespace reprise::runtime
