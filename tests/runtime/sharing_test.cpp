// SPDX-License-Identifier: Apache-2.0
#include "runtime/sharing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isin.h>
#include <gtest/gtest.h>

#include <random>

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

TEST(AreApart, IsSoForSlicesThatHaveNothingInCommon) {
  const at::Tensor x = at::empty({6, 4, 5}, at::kFloat);
  for (std::int64_t d = 0; d < 3; ++d) {
    EXPECT_TRUE(are_apart(x.narrow(d, 0, 2), x.narrow(d, 2, 2)));
    EXPECT_TRUE(are_apart(x.narrow(d, 3, 1), x.narrow(d, 0, 3)));
    EXPECT_FALSE(are_apart(x.narrow(d, 0, 3), x.narrow(d, 2, 2)));
  }
  const at::Tensor corner = x.narrow(0, 0, 2).narrow(1, 0, 2);
  EXPECT_TRUE(are_apart(corner, x.narrow(0, 0, 2).narrow(1, 2, 2)));
  EXPECT_FALSE(are_apart(corner, x.narrow(0, 1, 2).narrow(1, 1, 2)));
  EXPECT_TRUE(are_apart(x.slice(2, 0, 5, 2), x.slice(2, 1, 5, 2)));  // 0, 2, 4 and 1, 3
  EXPECT_TRUE(are_apart(x.transpose(0, 2).narrow(1, 0, 1), x.transpose(0, 2).narrow(1, 1, 1)));
}

TEST(AreApart, IsNotToldOfOtherLooks) {
  const at::Tensor x = at::empty({6, 4}, at::kFloat);
  EXPECT_FALSE(are_apart(x, x));
  EXPECT_FALSE(are_apart(x, x.view(-1)));
  EXPECT_FALSE(are_apart(x, x.t()));
  EXPECT_FALSE(are_apart(x.narrow(0, 0, 1).expand({3, 4}), x.narrow(0, 0, 1)));
  EXPECT_TRUE(are_apart(x.narrow(0, 0, 0), x));
}

// Against the elements themselves, one by one.
TEST(AreApart, IsNeverToldWhereElementsAreShared) {
  std::mt19937 random(1);
  const auto below = [&](std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random);
  };
  std::size_t told = 0;
  for (int i = 0; i < 2000; ++i) {
    const at::Tensor numbers = at::arange(3 * 4 * 5).view({3, 4, 5});
    const auto box = [&] {
      at::Tensor part = numbers;
      for (std::int64_t d = 0; d < 3; ++d) {
        const std::int64_t begin = below(part.size(d));
        part = part.slice(d, begin, begin + 1 + below(part.size(d) - begin), 1 + below(2));
      }
      return i % 3 == 0 ? part.transpose(0, 1 + below(2)) : part;
    };
    const at::Tensor a = box();
    const at::Tensor b = box();
    const bool share = at::isin(a.contiguous(), b.contiguous()).any().item<bool>();
    const bool apart = are_apart(a, b);
    EXPECT_FALSE(apart && share) << a.sizes() << b.sizes();
    told += apart;
  }
  EXPECT_GT(told, 500);
}

}  // namespace
}  // namespace reprise::runtime
