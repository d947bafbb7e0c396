// SPDX-License-Identifier: Apache-2.0
// Steps whose forward runs again: for another backward than was expected, or by a tighter plan.
#include <ATen/ATen.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/random_state.h"
#include "runtime/training_step.h"
#include "tests/runtime/steps.h"

namespace reprise::runtime {
namespace {

// An op that runs out of memory as often as is said.
int failures = 0;
at::Tensor sometimes(const at::Tensor& x) {
  if (failures == 0) return at::mul(x, 2);
  --failures;
  throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "no memory left");
}
// An op that counts its runs in an argument, and makes something.
at::Tensor counted(const at::Tensor& x, at::Tensor counter) {
  counter.add_(1);
  return at::mul(x, 2);
}
const auto ops = c10::RegisterOperators()
                     .op("reprise_test::sometimes(Tensor x) -> Tensor", &sometimes)
                     .op("reprise_test::counted(Tensor x, Tensor(a!) counter) -> Tensor", &counted);

// Two outputs, y = dropout(a) with a = −xw, and b = −a. Captured for gradients of both; the other
// program is for y's alone. So that all of forward counts, the gradient that it says w has is that
// of a times xy.
struct TwoOutputs {
  at::Tensor x = numbers({1, 2, 3});
  at::Tensor w = parameter({4, 5, 6});
  at::Tensor count = numbers({0});
  ProgramBuilder both = make(true);
  ProgramBuilder one = make(false);

  static ProgramBuilder make(bool second) {
    ProgramBuilder build;
    const Slot x = build.input("x");
    const Slot w = build.input("w");
    const Slot count = build.input("count");
    const Slot a = build.change("a", "aten::neg_", {build.op("xw", kMul, {x, w})});
    build.change("count", "aten::add_.Scalar", {count, 1, 1});
    const auto drop = build.op("drop", "aten::native_dropout", {a, 0.5, true}, {"y", "mask"});
    build.last_call().random = true;
    const Slot b = build.op("b", "aten::neg", {a});
    auto tangents = build.outside({drop[0], b}, {true, true});
    if (!second) build.program().tangents[1] = kNone;
    Slot da = build.op("a'", kMul, {tangents[0], drop[1]});
    if (second) da = build.change("a2'", "aten::add_.Tensor", {da, tangents[1], -1});
    const Slot dw = build.op("xw'", kMul, {da, drop[0]});
    build.gradient(w, build.op("w'", kMul, {dw, x}));
    return build;
  }

  std::shared_ptr<Prepared> prepared() {
    auto prepared =
        prepare(both, "xw a -xw count drop b -a outside a' a2' -a' -y' -b' xw' -a2' -y w' -xw'");
    prepared->other = [this](const BackwardCase& actual, bool) {
      EXPECT_EQ(actual.tangents, (std::vector<Tangent>{dense({1}), std::nullopt}));
      return std::make_shared<Schedule>(
          one.schedule("xw a -xw count drop b -a outside a' -y' -b' xw' -a' -y w' -xw'"));
    };
    return prepared;
  }
};

TEST(AnotherBackward, RunsForwardAgainAsItRan) {
  TwoOutputs it;
  const auto outputs = run_step(it.prepared(), {it.x, it.w, it.count}).first;
  const std::string before = random_state(c10::kCPU);
  outputs[0].backward(numbers({1, 1, 1}));
  EXPECT_EQ(random_state(c10::kCPU), before);
  EXPECT_NUMBERS(it.count, {1});
  EXPECT_TRUE(at::equal(it.w.grad(), outputs[0] * it.x)) << outputs[0] << it.w.grad();
}

TEST(AnotherBackward, IsNotAskedForWhereTheOneThatWasExpectedComes) {
  TwoOutputs it;
  const auto prepared = it.prepared();
  prepared->other = nullptr;
  const auto outputs = run_step(prepared, {it.x, it.w, it.count}).first;
  (outputs[0] * numbers({0, 0, 0}) + outputs[1] * numbers({1, 1, 1})).sum().backward();
  EXPECT_TRUE(at::equal(it.w.grad(), -outputs[0] * it.x)) << outputs[0] << it.w.grad();
}

TEST(AnotherBackward, IsRefusedWhereForwardWouldNotRunAsItRan) {
  TwoOutputs it;
  const auto outputs = run_step(it.prepared(), {it.x, it.w, it.count}).first;
  it.w.detach().add_(1);
  const std::string error = error_of([&] { outputs[0].backward(numbers({1, 1, 1})); });
  EXPECT_TRUE(has(error, "forward has to run again")) << error;
}

TEST(AnotherBackward, DoesNotMindChangesOfWhatForwardChangesItself) {
  TwoOutputs it;
  const auto outputs = run_step(it.prepared(), {it.x, it.w, it.count}).first;
  run_step(it.prepared(), {it.x, it.w, it.count});
  outputs[0].backward(numbers({1, 1, 1}));
  EXPECT_NUMBERS(it.count, {2});
}

TEST(AStepThatWasShed, HoldsNothingAndRunsForwardAgain) {
  install_memory_probe();
  TwoOutputs it;
  const auto prepared = it.prepared();
  const std::shared_ptr<const Schedule> schedule = prepared->schedule;
  int asked = 0;
  prepared->other = [&](const BackwardCase&, bool was_shed) {
    asked += was_shed;
    return schedule;
  };
  const auto [outputs, begun] = run_step(prepared, {it.x, it.w, it.count});
  const std::int64_t before = bytes_in_use();
  begun.shed();
  EXPECT_LT(bytes_in_use(), before);
  (outputs[0] * numbers({0, 0, 0}) + outputs[1] * numbers({1, 1, 1})).sum().backward();
  EXPECT_EQ(asked, 1);
  EXPECT_NUMBERS(it.count, {1});
  EXPECT_TRUE(at::equal(it.w.grad(), -outputs[0] * it.x)) << outputs[0] << it.w.grad();
  begun.shed();  // nothing is left to let go of
}

TEST(AnotherBackward, ThatFailsLeavesTheExpectedOneAsItIs) {
  TwoOutputs it;
  const auto prepared = it.prepared();
  const auto other = prepared->other;
  prepared->other = [&](const BackwardCase& actual, bool was_shed) {
    auto schedule = std::make_shared<Schedule>(*other(actual, was_shed));
    auto program = std::make_shared<Program>(*schedule->program);
    program->calls.back().arguments[1].slots[0] = kNone;  // w' without x
    schedule->program = program;
    return schedule;
  };
  const auto outputs = run_step(prepared, {it.x, it.w, it.count}).first;
  EXPECT_NE(error_of([&] { outputs[0].backward(numbers({1, 1, 1}), true); }), "none");
  (outputs[0] * numbers({0, 0, 0}) + outputs[1] * numbers({1, 1, 1})).sum().backward();
  EXPECT_TRUE(at::equal(it.w.grad(), -outputs[0] * it.x)) << outputs[0] << it.w.grad();
}

// y = 2x, by a call that counts in another input; and z, of which backward is not expected.
TEST(AnotherBackward, RunsACallAgainThatChangesAnInputAndMakesSomething) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot count = build.input("count");
  const Slot h = build.op("h", "reprise_test::counted", {x, count});
  build.last_call().bumped = {1};
  const Slot y = build.op("y", kMul, {h, h});
  const Slot dy = build.outside(y);
  build.gradient(x, build.op("x'", kMul, {dy, h}));
  const std::string plan = "h y outside x' -h -y'";
  const auto prepared = prepare(build, plan);
  prepared->expected.tangents = {std::nullopt};
  prepared->other = [&](const BackwardCase&, bool) {
    return std::make_shared<Schedule>(build.schedule(plan));
  };
  const at::Tensor in = parameter({3});
  const at::Tensor counter = numbers({0});
  run_step(prepared, {in, counter}).first[0].backward(numbers({1}));
  EXPECT_NUMBERS(in.grad(), {6});
  EXPECT_NUMBERS(counter, {1});
}

TEST(AnotherBackward, DoesNotChangeListsOfInputsTwice) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot a = build.input("a");
  const Slot b = build.input("b");
  build.change("step", "aten::_foreach_add_.Scalar", {{a, b}, 1});
  const Slot dy = build.outside(build.op("y", "aten::exp", {x}));
  build.gradient(x, build.op("x'", "aten::neg", {dy}));
  const std::string plan = "step y outside x' -y'";
  const auto prepared = prepare(build, plan);
  prepared->expected.tangents = {std::nullopt};
  prepared->other = [&](const BackwardCase&, bool) {
    return std::make_shared<Schedule>(build.schedule(plan));
  };
  const std::vector<at::Tensor> inputs{parameter({0}), numbers({0}), numbers({10})};
  run_step(prepared, inputs).first[0].backward(numbers({1}));
  EXPECT_NUMBERS(inputs[1], {1});
  EXPECT_NUMBERS(inputs[2], {11});
  EXPECT_EQ(inputs[2]._version(), 1);
}

// y = w · count, which is counted up by 1 in forward and by 10 in backward; and the gradient of w,
// which reads it after that.
struct CountsAgain {
  ProgramBuilder build;
  at::Tensor w = parameter({3});
  at::Tensor count = numbers({0});
  std::shared_ptr<Prepared> prepared;

  explicit CountsAgain(const char* last_op) {
    const Slot w_in = build.input("w");
    const Slot count_in = build.input("count");
    const Slot view = build.view("view", "aten::t", {count_in});
    build.change("count", "aten::add_.Scalar", {count_in, 1, 1});
    const Slot dy = build.outside(build.op("y", kMul, {w_in, view}));
    build.change("count'", "aten::add_.Scalar", {count_in, 10, 1});
    build.gradient(w_in, build.op("w'", last_op, {build.op("h", kMul, {dy, view})}));
    build.program().remembered = {count_in.id};
    prepared = prepare(build, kPlan);
    prepared->other = [this](const BackwardCase&, bool) {
      return std::make_shared<Schedule>(build.schedule(kPlan));
    };
    prepared->tighter = [this] { return std::make_shared<Schedule>(build.schedule(kPlan)); };
  }
  ~CountsAgain() { failures = 0; }

  at::Tensor run_forward() { return run_step(prepared, {w, count}).first[0]; }

  static constexpr auto kPlan = "count y outside count' h w' -h -y'";
};

TEST(AnotherBackward, ChangesInputsThatBackwardChanges) {
  CountsAgain it("aten::neg");
  it.prepared->expected.tangents = {std::nullopt};
  const at::Tensor y = it.run_forward();
  it.run_forward();
  y.backward(numbers({1}));
  EXPECT_NUMBERS(y, {3});
  EXPECT_NUMBERS(it.count, {12});
  EXPECT_NUMBERS(it.w.grad(), {-12});
  EXPECT_EQ(it.count._version(), 3);
}

// y = exp(w), and a gradient of w that runs out of memory where it is told to.
struct OutOfMemory {
  ProgramBuilder build;
  at::Tensor w = parameter({0});
  std::shared_ptr<Prepared> prepared;

  OutOfMemory() {
    const Slot in = build.input("w");
    const Slot dy = build.outside(build.op("y", "aten::exp", {in}));
    build.gradient(in, build.op("w'", "reprise_test::sometimes", {dy}));
    prepared = prepare(build, kPlan);
    prepared->tighter = [this] { return std::make_shared<Schedule>(build.schedule(kPlan)); };
  }
  ~OutOfMemory() { failures = 0; }

  static constexpr auto kPlan = "y outside w' -y'";
};

TEST(OutOfMemory, IsMetByTighterPlansUntilOneFits) {
  OutOfMemory it;
  bool whole = true;
  it.prepared->finished = [&](const Taken& taken) { whole = taken.whole; };
  const at::Tensor y = run_step(it.prepared, {it.w}).first[0];
  failures = 3;
  y.backward(numbers({3}));
  EXPECT_NUMBERS(it.w.grad(), {6});
  EXPECT_EQ(failures, 0);
  EXPECT_FALSE(whole);
}

TEST(OutOfMemory, IsMetInALaterBackwardToo) {
  OutOfMemory it;
  const at::Tensor y = run_step(it.prepared, {it.w}).first[0];
  y.backward(numbers({3}), true);
  failures = 1;
  y.backward(numbers({4}));
  EXPECT_NUMBERS(it.w.grad(), {14});
}

TEST(OutOfMemory, UndoesWhatBackwardHasChanged) {
  CountsAgain it("reprise_test::sometimes");
  const at::Tensor y = it.run_forward();
  failures = 2;
  y.backward(numbers({1}));
  EXPECT_NUMBERS(it.count, {11});
  EXPECT_NUMBERS(it.w.grad(), {22});
}

TEST(OutOfMemory, StandsWhereThereIsNoTighterPlan) {
  OutOfMemory it;
  it.prepared->tighter = nullptr;
  const at::Tensor y = run_step(it.prepared, {it.w}).first[0];
  failures = 1;
  EXPECT_THROW(y.backward(numbers({3})), c10::OutOfMemoryError);
}

TEST(OutOfMemory, StandsWhereForwardWouldNotRunAsItRan) {
  OutOfMemory it;
  const at::Tensor y = run_step(it.prepared, {it.w}).first[0];
  it.w.detach().add_(1);  // backward does not read it
  failures = 1;
  EXPECT_THROW(y.backward(numbers({3})), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace reprise::runtime
