// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace reprise {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Quantity, AddsAndMultipliesExactly) {
  EXPECT_EQ(Bytes{3} + Bytes{4} - Bytes{2}, Bytes{5});
  EXPECT_EQ(Cost{3} * 4, Cost{12});
  EXPECT_LT(Bytes{3}, Bytes{4});
}

TEST(Quantity, ThrowsWhere64BitsDoNotDo) {
  EXPECT_THROW(Bytes{kMost} + Bytes{1}, OverflowError);
  EXPECT_THROW(Bytes{-kMost} - Bytes{2}, OverflowError);
  EXPECT_THROW(Cost{kMost / 2 + 1} * 2, OverflowError);
  EXPECT_EQ(Bytes{kMost - 1} + Bytes{1}, Bytes{kMost});
}

}  // namespace
}  // namespace reprise
