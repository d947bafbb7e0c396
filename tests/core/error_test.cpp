// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/error.h"

#include <gtest/gtest.h>

#include <array>

namespace reprise {
namespace {

TEST(DidYouMean, OffersTheNearestName) {
  const std::array<std::string_view, 3> known{"store-all", "store-last", "revolve"};
  EXPECT_EQ(did_you_mean("store", known), " (did you mean 'store-all'?)");  // a beginning
  EXPECT_EQ(did_you_mean("revlove", known), " (did you mean 'revolve'?)");
  EXPECT_EQ(did_you_mean("checkmate", known), "");
}

TEST(InQuotes, HidesControlCharactersAndCutsLongNames) {
  EXPECT_EQ(in_quotes("conv\x1b[31m"), "'conv?[31m'");
  EXPECT_LT(in_quotes(std::string(10'000, 'x')).size(), 300U);
}

}  // namespace
}  // namespace reprise
