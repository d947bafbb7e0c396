// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/budget.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

constexpr Bytes kBase{1001};

Bytes bytes_of(std::string_view text) { return *parse_budget(text, kBase).bytes; }

TEST(ParseBudget, ReadsEverySpelling) {
  EXPECT_EQ(bytes_of("4096"), Bytes{4096});
  EXPECT_EQ(bytes_of("9223372036854775807"), Bytes{INT64_MAX});
  EXPECT_EQ(bytes_of("7B"), Bytes{7});
  EXPECT_EQ(bytes_of("2kB"), Bytes{2'000});
  EXPECT_EQ(bytes_of("1.5GB"), Bytes{1'500'000'000});
  EXPECT_EQ(bytes_of("6 GiB"), Bytes{6LL << 30});
  EXPECT_EQ(bytes_of("0.5KiB"), Bytes{512});
  EXPECT_EQ(bytes_of("50%"), Bytes{500});     // floor(500.5)
  EXPECT_EQ(bytes_of("12.5 %"), Bytes{125});  // floor(125.125)
  EXPECT_EQ(bytes_of("250%"), Bytes{2502});   // floor(2502.5)
  EXPECT_EQ(parse_budget("min", kBase).bytes, std::nullopt);
}

TEST(ParseBudget, TakesSharesOfHugePeaksExactly) {
  // floor(0.999999999 * (2^63 - 1)): a double would be off by hundreds.
  EXPECT_EQ(*parse_budget("99.9999999%", Bytes{INT64_MAX}).bytes, Bytes{9223372027631403770});
}

TEST(ParseBudget, RefusesTheRestWithTheReason) {
  for (const char* text : {"", "x", "-5", "1.5", "5gb", "%", "1e9", "50%%", "min ", "nan", "1..2GB",
                           "99999999999999999999", "9999999TiB", "99999999999999999%"}) {
    EXPECT_THROW(parse_budget(text, Bytes{INT64_MAX}), InputError) << text;
  }
  try {
    parse_budget("5gb", kBase);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "budget '5gb': unknown unit 'gb' (did you mean 'GB'?)");
  }
}

TEST(Hundredths, AreRoundedDownWithoutOverflowOnTheWay) {
  EXPECT_EQ(hundredths(Bytes{250}, 150), Bytes{375});
  EXPECT_EQ(hundredths(Bytes{199}, 101), Bytes{200});  // 200.99
  EXPECT_EQ(hundredths(Bytes{INT64_MAX / 3}, 299), Bytes{9192627463398593219});
}

TEST(ToWords, ShowsThreeDigits) {
  EXPECT_EQ(to_words(Bytes{0}), "0 B");
  EXPECT_EQ(to_words(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_words(Bytes{1024}), "1.00 KiB");
  EXPECT_EQ(to_words(Bytes{5510290944}), "5.13 GiB");
  EXPECT_EQ(to_words(Bytes{652214272}), "622 MiB");
}

}  // namespace
}  // namespace reprise
