// SPDX-License-Identifier: Apache-2.0
#include "runtime/sharing.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace reprise::runtime {
namespace {

const at::Tensor kRows = at::empty({6, 4}, at::kFloat);
const at::Tensor kOther = at::empty({6, 4}, at::kFloat);

TEST(Sharing, IsWhereTensorsLieInTheSameStorage) {
  // Rows of four floats: the third begins 2 * 4 * 4 bytes after the first.
  const std::vector<at::Tensor> tensors{kRows.narrow(0, 1, 2), kOther, kRows.narrow(0, 3, 2)};
  EXPECT_EQ(sharing_of(tensors, {true, false, false}),
            (std::vector<Shared>{{0, 0, 0}, {2, 0, 32}}));
  EXPECT_EQ(sharing_of(tensors, {false, false, true}),
            (std::vector<Shared>{{0, 0, 0}, {2, 0, 32}}));
}

TEST(Sharing, IsNoneWhereItDoesNotMatter) {
  EXPECT_TRUE(sharing_of({kRows, kOther, kRows.t()}, {false, true, false}).empty());
  EXPECT_TRUE(sharing_of({kRows, kOther}, {true, true}).empty());
  EXPECT_TRUE(sharing_of({}, {}).empty());
}

}  // namespace
}  // namespace reprise::runtime
