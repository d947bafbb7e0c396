// SPDX-License-Identifier: Apache-2.0
#include "runtime/random_state.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace reprise::runtime {
namespace {

TEST(Draw, IsTheSameEachTimeAndLeavesTheGeneratorWhereItWas) {
  Draw draw;
  at::Tensor first, again;
  draw.make(c10::kCPU, [&] { first = at::rand({5}); });
  at::rand({3});
  const std::string before = random_state(c10::kCPU);
  for (int i = 0; i < 2; ++i) {
    draw.repeat(c10::kCPU, [&] { again = at::rand({5}); });
    EXPECT_TRUE(at::equal(first, again));
  }
  EXPECT_EQ(random_state(c10::kCPU), before);
}

// As another thread may, in the midst of it.
TEST(Draw, ThrowsWhereSomebodyElseDrawsToo) {
  Draw draw;
  draw.make(c10::kCPU, [] { at::rand({5}); });
  const std::string before = random_state(c10::kCPU);
  EXPECT_THROW(draw.repeat(c10::kCPU, [] { at::rand({6}); }), c10::Error);
  EXPECT_EQ(random_state(c10::kCPU), before);
}

}  // namespace
}  // namespace reprise::runtime
