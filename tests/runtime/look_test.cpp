// SPDX-License-Identifier: Apache-2.0
#include "runtime/look.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace reprise::runtime {
namespace {

TEST(Look, IsThatOfTheTensor) {
  const at::Tensor numbers = at::randn({4, 6}, at::kComplexFloat);
  for (const at::Tensor& tensor :
       {numbers, numbers.t(), numbers.narrow(1, 2, 3), numbers.conj(), at::imag(numbers.conj())}) {
    const at::Tensor again = Look::of(tensor).at(tensor.storage());
    EXPECT_TRUE(at::equal(again, tensor));
    EXPECT_EQ(Look::of(again), Look::of(tensor));
  }
  EXPECT_FALSE(Look::of(numbers) == Look::of(numbers.conj()));
}

}  // namespace
}  // namespace reprise::runtime
