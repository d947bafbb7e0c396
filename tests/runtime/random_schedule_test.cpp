// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "runtime/schedule.h"
#include "tests/runtime/programs.h"

namespace reprise::runtime {
namespace {

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

}  // namespace
}  // namespace reprise::runtime
