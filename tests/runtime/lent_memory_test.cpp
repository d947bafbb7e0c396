// SPDX-License-Identifier: Apache-2.0
#include "runtime/lent_memory.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace reprise::runtime {
namespace {

// Four floats, lent as one storage.
struct Lending {
  at::Tensor memory = at::arange(4, at::kFloat);
  std::shared_ptr<int> owner = std::make_shared<int>();
  LentMemory lent;

  at::Tensor lend(std::uint64_t step, bool stays) {
    const c10::Storage storage =
        lent.lend(memory.data_ptr(), memory.nbytes(), at::kCPU, owner, step, stays);
    return at::empty({0}, memory.options()).set_(storage, 0, {4}, {1});
  }
};

TEST(LentMemory, IsTheMemoryItself) {
  Lending it;
  const at::Tensor tensor = it.lend(1, true);
  it.memory.fill_(7);
  EXPECT_TRUE(at::equal(tensor, it.memory));
}

TEST(LentMemory, WhatIsHeldIsMovedBeforeAnotherStepWrites) {
  Lending it;
  const at::Tensor tensor = it.lend(1, true);
  const at::Tensor view = tensor.narrow(0, 2, 2);
  it.lent.move_out(2);
  it.memory.zero_();
  EXPECT_TRUE(at::equal(tensor, at::arange(4, at::kFloat)));
  EXPECT_TRUE(at::equal(view, at::arange(2, 4, at::kFloat)));
  tensor.fill_(5);
  EXPECT_TRUE(at::equal(it.memory, at::arange(4, at::kFloat).zero_()));
  EXPECT_EQ(view[0].item<float>(), 5);
}

TEST(LentMemory, WhatStaysIsLeftWhereItIsByItsOwnStep) {
  Lending it;
  const at::Tensor staying = it.lend(1, true);
  const at::Tensor passing = it.lend(1, false);
  it.lent.move_out(1);
  EXPECT_EQ(staying.data_ptr(), it.memory.data_ptr());
  EXPECT_NE(passing.data_ptr(), it.memory.data_ptr());
  it.lent.move_out(2);
  EXPECT_NE(staying.data_ptr(), it.memory.data_ptr());
}

TEST(LentMemory, TheOwnerLivesForAsLongAsItsMemoryIsLent) {
  Lending it;
  at::Tensor tensor = it.lend(1, true);
  at::Tensor other = it.lend(1, true);
  EXPECT_EQ(it.owner.use_count(), 3);
  tensor.reset();
  EXPECT_EQ(it.owner.use_count(), 2);
  it.lent.move_out(2);
  EXPECT_EQ(it.owner.use_count(), 1);
}

}  // namespace
}  // namespace reprise::runtime
