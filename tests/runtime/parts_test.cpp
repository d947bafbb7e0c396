// SPDX-License-Identifier: Apache-2.0
#include "runtime/parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "runtime/halves.h"

namespace reprise::runtime {
namespace {

using Ints = std::vector<std::int64_t>;

c10::OperatorHandle op_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

at::Tensor numbers(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

torch::jit::Stack forward_of(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  return {x, w, bias, Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, false, Ints{0, 0}, 1};
}

torch::jit::Stack backward_of(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                              std::array<bool, 3> mask) {
  const c10::List<bool> wanted({mask[0], mask[1], mask[2]});
  return {dy,         x,          w,          c10::IValue(Ints{w.size(0)}),
          Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, false,
          Ints{0, 0}, 1,          wanted};
}

void expect_the_same(const char* op, const torch::jit::Stack& arguments, std::int32_t parts) {
  torch::jit::Stack whole = arguments;
  op_named(op).callBoxed(whole);
  torch::jit::Stack joined = arguments;
  run_in_parts(op_named(op), joined, parts);
  ASSERT_EQ(joined.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const at::Tensor& expected = whole[i].toTensor();
    const at::Tensor& actual = joined[i].toTensor();
    ASSERT_EQ(actual.defined(), expected.defined());
    if (!expected.defined()) continue;
    EXPECT_TRUE(at::allclose(actual, expected));
    EXPECT_EQ(actual.strides(), expected.strides());
    EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
  }
}

class PartsOfABatch : public testing::TestWithParam<at::MemoryFormat> {
 protected:
  at::Tensor x = numbers({9, 3, 6, 5}).contiguous(GetParam());
  at::Tensor w = numbers({4, 3, 3, 3}).contiguous(GetParam());
  at::Tensor dy = numbers({9, 4, 6, 5}).contiguous(GetParam());
};

TEST_P(PartsOfABatch, MakeAConvolution) {
  for (const std::int32_t parts : {2, 4}) {
    expect_the_same("aten::convolution", forward_of(x, w, numbers({4})), parts);
    expect_the_same("aten::convolution", forward_of(x, w, at::Tensor()), parts);
  }
}

TEST_P(PartsOfABatch, MakeItsBackward) {
  for (const std::int32_t parts : {2, 4}) {
    expect_the_same("aten::convolution_backward", backward_of(dy, x, w, {true, true, true}), parts);
    expect_the_same("aten::convolution_backward", backward_of(dy, x, w, {false, true, false}),
                    parts);
    expect_the_same("aten::convolution_backward", backward_of(dy, x, w, {true, false, false}),
                    parts);
  }
}

class HalvesAtOnce : public PartsOfABatch {};

TEST_P(HalvesAtOnce, MakeTheBitsOfOneCall) {
  for (const std::array<bool, 3> mask : {std::array{true, true, true}, {true, true, false}}) {
    torch::jit::Stack whole = backward_of(dy, x, w, mask);
    torch::jit::Stack halves = whole;
    op_named("aten::convolution_backward").callBoxed(whole);
    run_halves_at_once(op_named("aten::convolution_backward"), halves, c10::kCPU);
    ASSERT_EQ(halves.size(), 3);
    for (std::size_t i = 0; i < 3; ++i) {
      const at::Tensor& expected = whole[i].toTensor();
      ASSERT_EQ(halves[i].toTensor().defined(), expected.defined());
      if (!expected.defined()) continue;
      EXPECT_TRUE(at::equal(halves[i].toTensor(), expected));
      EXPECT_EQ(halves[i].toTensor().strides(), expected.strides());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PartsOfABatch,
                         testing::Values(at::MemoryFormat::Contiguous,
                                         at::MemoryFormat::ChannelsLast));
INSTANTIATE_TEST_SUITE_P(Layouts, HalvesAtOnce,
                         testing::Values(at::MemoryFormat::Contiguous,
                                         at::MemoryFormat::ChannelsLast));

// A gradient of 256 + 1 + 1 + 1: in 16 bits, 256 + 1 is 256.
TEST(Parts, AreAddedUpWithoutLosingWhatIsSmall) {
  const at::Tensor x = at::tensor({255., 1., 1., 0., 1., 0., 1., 0.}).to(at::kBFloat16);
  const at::Tensor ones = at::ones({8, 1, 1, 1}, at::kBFloat16);
  torch::jit::Stack stack = {ones,
                             x.view({8, 1, 1, 1}),
                             ones.narrow(0, 0, 1),
                             c10::IValue(),
                             Ints{1, 1},
                             Ints{0, 0},
                             Ints{1, 1},
                             false,
                             Ints{0, 0},
                             1,
                             c10::List<bool>({false, true, false})};
  run_in_parts(op_named("aten::convolution_backward"), stack, 4);
  EXPECT_EQ(stack[1].toTensor().item<double>(), 260);
  EXPECT_EQ(stack[1].toTensor().scalar_type(), at::kBFloat16);
}

TEST(Parts, AreOfConvolutionsAndBatchNormsOnly) {
  torch::jit::Stack stack = {at::ones({4})};
  EXPECT_THROW(run_in_parts(op_named("aten::relu"), stack, 2), std::invalid_argument);
}

}  // namespace
}  // namespace reprise::runtime
