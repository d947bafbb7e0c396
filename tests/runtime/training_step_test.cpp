// SPDX-License-Identifier: Apache-2.0
#include "runtime/training_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/executor.h"
#include "runtime/random_state.h"
#include "tests/runtime/steps.h"

namespace reprise::runtime {
namespace {

// y = relu(xw), and the gradients of both.
struct ReluWithGradients {
  ProgramBuilder build;
  at::Tensor x = parameter({1, -2, 3});
  at::Tensor w = parameter({4, 5, 6});

  ReluWithGradients() {
    const Slot in = build.input("x");
    const Slot weight = build.input("w");
    const Slot h = build.op("h", kMul, {in, weight});
    const Slot y = build.op("y", "aten::relu", {h});
    const Slot dy = build.outside(y);
    const Slot dh = build.op("h'", "aten::threshold_backward", {dy, y, 0});
    build.gradient(weight, build.op("w'", kMul, {dh, in}));
    build.gradient(in, build.op("x'", kMul, {dh, weight}));
  }

  at::Tensor run(const std::string& plan) {
    return run_step(prepare(build, plan), {x, w}).first[0];
  }
};

constexpr auto kPlain = "h y -h outside h' -y -y' w' x' -h'";

TEST(TrainingStep, ComputesWhatPlainTrainingDoes) {
  for (const std::string plan : {kPlain, "h y -h outside -y h y -h h' -y -y' w' x' -h'",
                                 "h y outside -y y -h h' w' -h' h' -y -y' x' -h'"}) {
    ReluWithGradients it;
    const at::Tensor y = it.run(plan);
    EXPECT_NUMBERS(y, {4, 0, 18});  // 1·4, max(−2·5, 0), 3·6
    y.backward(numbers({1, 10, 100}));
    EXPECT_NUMBERS(it.w.grad(), {1, 0, 300});  // x where y > 0, times 1 and 100
    EXPECT_NUMBERS(it.x.grad(), {4, 0, 600});
  }
}

TEST(TrainingStep, RunsAgainAndAgain) {
  ReluWithGradients it;
  const auto prepared = prepare(it.build, kPlain);
  for (int i = 0; i < 3; ++i) {
    run_step(prepared, {it.x, it.w}).first[0].backward(at::ones(3, at::kDouble));
  }
  EXPECT_NUMBERS(it.w.grad(), {3, 0, 9});
}

TEST(TrainingStep, RefusesAnotherNumberOfInputs) {
  ReluWithGradients it;
  const auto prepared = prepare(it.build, kPlain);
  EXPECT_TRUE(has(error_of([&] { run_step(prepared, {it.x}); }), "of 2 inputs was given 1"));
}

TEST(TrainingStep, GivesGradientsToThoseWhoAskOnly) {
  ReluWithGradients it;
  it.x = numbers({1, -2, 3});
  it.run(kPlain).backward(at::ones(3, at::kDouble));
  EXPECT_FALSE(it.x.grad().defined());
  EXPECT_NUMBERS(it.w.grad(), {1, 0, 3});
}

TEST(TrainingStep, HandsOverAGradientBeforeBackwardGoesOn) {
  // y = x·a·b: once b' is made, b may change, and a' is still right.
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot a = build.input("a");
  const Slot b = build.input("b");
  const Slot h = build.op("h", kMul, {x, a});
  const Slot dy = build.outside(build.op("y", kMul, {h, b}));
  const Slot dh = build.op("h'", kMul, {dy, b});
  build.gradient(b, build.op("b'", kMul, {dy, h}));
  build.gradient(a, build.op("a'", kMul, {dh, x}));
  at::Tensor weights_a = parameter({2});
  at::Tensor weights_b = parameter({3});
  std::string order;
  weights_a.register_hook([&](const at::Tensor&) { order += 'a'; });
  weights_b.register_hook([&](const at::Tensor&) {
    order += 'b';
    const c10::AutoGradMode no_grad(false);
    weights_b.mul_(100);
  });
  run_step(prepare(build, "h y outside h' b' -h -y' a' -h'"), {numbers({5}), weights_a, weights_b})
      .first[0]
      .backward(numbers({1}));
  EXPECT_EQ(order, "ba");
  EXPECT_NUMBERS(weights_b.grad(), {10});
  EXPECT_NUMBERS(weights_a.grad(), {15});
}

TEST(Errors, NameTheOpAndKeepTheirType) {
  ReluWithGradients it;
  it.build.program().calls[0].where = "'layer' aten::mul (model.py:7)";
  it.w = parameter({1, 2});
  const std::string error = error_of([&] { it.run(kPlain); });
  EXPECT_TRUE(has(error, "must match the size of tensor b (2)")) << error;
  EXPECT_TRUE(has(error, "while Reprise ran 'layer' aten::mul (model.py:7)")) << error;
  EXPECT_THROW(it.run(kPlain), c10::Error);
}

TEST(Errors, DoubleBackwardIsRefused) {
  ReluWithGradients it;
  const at::Tensor y = it.run(kPlain);
  const auto backward = [&] {
    torch::autograd::grad({y}, {it.w}, {numbers({1, 1, 1})}, true, true);
  };
  EXPECT_TRUE(has(error_of(backward), "double backward"));
}

TEST(RetainGraph, RunsBackwardTwiceAndNoMore) {
  ReluWithGradients it;
  const at::Tensor y = it.run(kPlain);
  y.backward(numbers({1, 1, 1}), true);
  y.backward(numbers({1, 1, 10}));
  EXPECT_NUMBERS(it.w.grad(), {2, 0, 33});  // 1 + 1, 0, 3 + 30
  EXPECT_TRUE(has(error_of([&] { y.backward(numbers({1, 1, 1})); }), "a second time"));
}

TEST(RetainGraph, LeavesWhatForwardKeptAsItIs) {
  // Backward writes over h = exp(x), which it frees next: only where it has it to itself.
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot h = build.op("h", "aten::exp", {x});
  const Slot dy = build.outside(build.op("y", "aten::neg", {h}));
  build.gradient(x, build.change("x'", "aten::mul_.Tensor", {h, dy}));
  const std::string plan = "h y outside x' -h -y'";
  ASSERT_EQ(build.words(build.schedule(plan)), "h -x y | h>x' x' /x -h -y'");
  at::Tensor in = parameter({0});
  const at::Tensor y = run_step(prepare(build, plan), {in}).first[0];
  y.backward(numbers({2}), true);
  EXPECT_NUMBERS(in.grad(), {2});
  y.backward(numbers({5}));
  EXPECT_NUMBERS(in.grad(), {7});
}

TEST(Guards, RefuseWhatIsModifiedBetweenForwardAndBackward) {
  const auto after = [](const std::string& plan, auto change) {
    ReluWithGradients it;
    const at::Tensor y = it.run(plan);
    {
      const c10::AutoGradMode no_grad(false);
      change(it, y.detach());
    }
    return error_of([&] { y.backward(numbers({1, 1, 1})); });
  };
  const std::string refused = "modified by an inplace operation";
  EXPECT_TRUE(has(after(kPlain, [](auto& it, auto) { it.x.add_(1); }), refused));
  EXPECT_TRUE(has(after(kPlain, [](auto& it, auto) { it.w.add_(1); }), refused));
  EXPECT_TRUE(has(after(kPlain, [](auto&, at::Tensor y) { y.add_(1); }), refused));
  EXPECT_EQ(after(kPlain, [](auto&, auto) {}), "none");
}

TEST(Guards, RefuseAModifiedInputThatBackwardReadsAViewOf) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot t = build.view("t", "aten::alias", {x});
  const Slot dy = build.outside(build.op("y", "aten::exp", {t}));
  build.gradient(x, build.op("x'", kMul, {dy, t}));
  const at::Tensor in = parameter({2, 3});
  const at::Tensor y = run_step(prepare(build, "y outside x' -y'"), {in}).first[0];
  in.detach().add_(1);
  EXPECT_TRUE(has(error_of([&] { y.backward(numbers({1, 1})); }), "modified by an inplace"));
}

TEST(Guards, LetPassWhatBackwardDoesNotRead) {
  ProgramBuilder build;
  const Slot x = build.input("x");
  const Slot w = build.input("w");
  const Slot dy = build.outside(build.op("y", kMul, {x, w}));
  build.gradient(w, build.op("w'", kMul, {dy, x}));
  const at::Tensor in = numbers({2});
  at::Tensor weights = parameter({3});
  const at::Tensor y = run_step(prepare(build, "y outside w' -y'"), {in, weights}).first[0];
  y.detach().zero_();
  weights.detach().zero_();
  y.backward(numbers({1}));
  EXPECT_NUMBERS(weights.grad(), {2});
}

// y = dropout(x), whose backward reads the mask.
struct Dropout {
  ProgramBuilder build;
  at::Tensor x = at::ones(64, at::kDouble).requires_grad_();

  Dropout() {
    const Slot in = build.input("x");
    const auto drop = build.op("drop", "aten::native_dropout", {in, 0.5, true}, {"y", "mask"});
    build.last_call().random = true;
    build.gradient(in, build.op("x'", kMul, {build.outside(drop[0]), drop[1]}));
  }
};

TEST(RandomNumbers, AreDrawnAgainAsInTheFirstRun) {
  Dropout it;
  at::manual_seed(1);
  const at::Tensor y =
      run_step(prepare(it.build, "drop -mask outside drop x' -mask"), {it.x}).first[0];
  const std::string after_forward = random_state(c10::kCPU);
  at::rand(5);
  const std::string before_backward = random_state(c10::kCPU);
  ASSERT_NE(after_forward, before_backward);
  y.backward(at::ones(64, at::kDouble));
  EXPECT_TRUE(at::equal(it.x.grad() * 2, y));           // what is kept is doubled: 1 / (1 − 0.5)
  EXPECT_EQ(random_state(c10::kCPU), before_backward);  // as if it had run once
  const double kept = it.x.grad().sum().item<double>();
  EXPECT_TRUE(0 < kept && kept < 64) << kept;
}

TEST(RandomNumbers, AreThoseOfPlainTraining) {
  Dropout it;
  at::manual_seed(1);
  const at::Tensor plain = run_step(prepare(it.build, "drop outside x' -mask"), {it.x}).first[0];
  const std::string after = random_state(c10::kCPU);
  at::manual_seed(1);
  const at::Tensor y =
      run_step(prepare(it.build, "drop -mask outside drop x' -mask"), {it.x}).first[0];
  EXPECT_TRUE(at::equal(y, plain));
  EXPECT_EQ(random_state(c10::kCPU), after);
}

// y = batch norm of x, and what backward reads of it.
struct BatchNorm {
  ProgramBuilder build;
  at::Tensor x = at::arange(6, at::kDouble).view({3, 2}).requires_grad_();
  at::Tensor mean = at::zeros(2, at::kDouble);
  at::Tensor variance = at::ones(2, at::kDouble);

  BatchNorm() {
    const Slot in = build.input("x");
    const Slot running_mean = build.input("mean");
    const Slot running_variance = build.input("variance");
    const auto norm = build.op("norm", "aten::native_batch_norm",
                               {in, Slot{}, Slot{}, running_mean, running_variance, true, 0.5, 0.0},
                               {"y", "saved_mean", "saved_deviation"});
    build.last_call().scratch = {3, 4};
    build.last_call().unread = {3, 4};
    const auto tangents = build.outside({norm[0], norm[0]}, {true, true});
    build.gradient(in, build.op("x'", kMul, {tangents[0], norm[0]}));
  }
};

TEST(RunningStatistics, ChangeOnce) {
  BatchNorm it;
  auto prepared = prepare(it.build, "norm outside -y -saved_mean norm -y norm x'");
  prepared->expected.tangents = {dense({2, 1}), dense({2, 1})};
  const auto y = run_step(prepared, {it.x, it.mean, it.variance}).first;
  EXPECT_NUMBERS(it.mean, {1, 1.5});  // half of the means 2 and 3
  (y[0] + y[1]).backward(at::ones({3, 2}, at::kDouble));
  EXPECT_NUMBERS(it.mean, {1, 1.5});
  EXPECT_NUMBERS(it.variance, {2.5, 2.5});  // (1 + 4) / 2
  EXPECT_TRUE(at::equal(it.x.grad(), y[0]));
}

TEST(Taken, IsToldOnceAndSaysWhetherAllRanAsPlanned) {
  std::vector<bool> told;
  const auto finished = [&](const Taken& taken) { told.push_back(taken.whole); };
  ReluWithGradients it;
  const auto prepared = prepare(it.build, kPlain);
  prepared->finished = finished;
  run_step(prepared, {it.x, it.w}).first[0].backward(numbers({1, 1, 1}));
  EXPECT_EQ(told, std::vector<bool>{true});
  run_step(prepared, {it.x, it.w});  // never run backward
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
  {
    const at::Tensor y = run_step(prepared, {it.x, it.w}).first[0];
    y.backward(numbers({1, 1, 1}), true);
    y.backward(numbers({1, 1, 1}));
  }
  EXPECT_EQ(told, (std::vector<bool>{true, false, false}));
}

TEST(Taken, HasThePeakOfEachInstruction) {
  install_memory_probe();
  ReluWithGradients it;
  it.x = at::ones(1000, at::kDouble);
  it.w = at::ones(1000, at::kDouble).requires_grad_();
  const auto prepared = prepare(it.build, kPlain);
  Taken taken;
  prepared->finished = [&](const Taken& told) { taken = told; };
  prepared->measured = c10::kCPU;
  prepared->by_instruction = true;
  const std::int64_t before = bytes_in_use();
  {
    const at::Tensor tangent = at::ones(1000, at::kDouble);
    run_step(prepared, {it.x, it.w}).first[0].backward(tangent);
  }
  ASSERT_EQ(taken.peaks.size(), prepared->schedule->instructions.size());
  EXPECT_EQ(taken.before.size(), taken.peaks.size());
  // With the tangent, in use are h after the first call, y after forward, and, since the caller
  // holds y, y, h', w' and x' at the most.
  EXPECT_EQ(taken.peaks[0] - before, 2 * 8000);
  EXPECT_EQ(taken.before[0] - before, 8000);
  EXPECT_EQ(taken.forward_end - before, 2 * 8000);
  EXPECT_EQ(taken.peak - before, 5 * 8000);
}

}  // namespace
}  // namespace reprise::runtime
