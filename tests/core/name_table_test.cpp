// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/name_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reprise {
namespace {

TEST(NameTable, FindsNothingWhereNothingWasAdded) {
  EXPECT_EQ(NameTable().find("a"), std::nullopt);
  EXPECT_EQ(NameTable().find(""), std::nullopt);
}

TEST(NameTable, GivesEachNameThePositionAtWhichItWasAdded) {
  NameTable table;
  EXPECT_TRUE(table.add("b"));
  EXPECT_TRUE(table.add("a"));
  EXPECT_EQ(table.find("b"), 0U);
  EXPECT_EQ(table.find("a"), 1U);
  EXPECT_EQ(table.find("ab"), std::nullopt);
}

TEST(NameTable, RefusesANameThatIsThere) {
  NameTable table;
  EXPECT_TRUE(table.add("a"));
  EXPECT_FALSE(table.add("a"));
  EXPECT_TRUE(table.add("b"));
  EXPECT_EQ(table.find("b"), 1U);  // the refused name took no position
}

TEST(NameTable, KeepsPositionsAsItGrows) {
  std::vector<std::string> names;
  for (int i = 0; i < 10'000; ++i) names.push_back(std::to_string(i));
  NameTable grown;
  NameTable reserved;
  reserved.reserve(names.size());
  for (const std::string& name : names) {
    EXPECT_TRUE(grown.add(name));
    EXPECT_TRUE(reserved.add(name));
  }
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(grown.find(names[i]), i);
    EXPECT_EQ(reserved.find(names[i]), i);
  }
  EXPECT_EQ(grown.find("10000"), std::nullopt);
  EXPECT_EQ(grown.names().size(), names.size());
}

}  // namespace
}  // namespace reprise
