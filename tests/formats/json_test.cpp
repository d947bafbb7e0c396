// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reprise {
namespace {

std::string message_of(const std::string& content, void (*read)(JsonValue)) {
  try {
    const JsonDocument document(Text{"file.json", content});
    read(document.root());
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void nothing(JsonValue) {}

TEST(JsonDocument, KeepsOrderKindsAndKeys) {
  const JsonDocument document(Text{"file.json", R"({"a": [1, "x", true, null], "b": {"c": 2.0}})"});
  std::string text;
  for (const JsonValue member : document.root().members()) text += member.key();
  EXPECT_EQ(text, "ab");
  std::size_t count = 0;
  for ([[maybe_unused]] const JsonValue element : document.root().at("a").elements()) ++count;
  EXPECT_EQ(count, 4U);
  EXPECT_EQ(document.root().at("b").at("c").amount(), 2);
  EXPECT_FALSE(document.root().find("missing"));
}

TEST(JsonDocument, RefusesWithLineAndColumn) {
  EXPECT_EQ(message_of("{\"a\":\n [1,]}", nothing).rfind("file.json:2:5: syntax error", 0), 0U);
  EXPECT_EQ(message_of("{\"a\": 1", nothing).rfind("file.json:1:8: syntax error", 0), 0U);
  EXPECT_EQ(message_of("[1e999]", nothing), "file.json:1:6: number overflow parsing '1e999'");
  EXPECT_NE(message_of("[1] 2", nothing), "");
  EXPECT_NE(message_of("\"\xff\"", nothing), "");
}

TEST(JsonDocument, RefusesDeepNestingAndRepeatedKeys) {
  EXPECT_EQ(message_of(std::string(100'000, '['), nothing),
            "file.json: "
            "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0…: "
            "JSON nested deeper than 64 levels");
  EXPECT_EQ(message_of(R"({"x": {"a": 1, "b": 2, "a": 3}})", nothing),
            "file.json: x.a: the key is there twice");
  std::string many = "{";
  for (int i = 0; i < 1'000; ++i) many += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_EQ(message_of(many + "\"z\": 0}", nothing), "");
  EXPECT_EQ(message_of(many + "\"k900\": 0}", nothing), "file.json: k900: the key is there twice");
}

TEST(JsonValue, SaysWhereAndWhatItWants) {
  const auto amount = [](JsonValue root) {
    for (const JsonValue element : root.at("ops").elements()) element.at("cost").amount();
  };
  EXPECT_EQ(message_of(R"({"ops": [{"cost": 1}, {"cost": -1}]})", amount),
            "file.json: ops[1].cost: -1 is below zero");
  EXPECT_EQ(message_of(R"({"ops": [{"cost": 1.5}]})", amount),
            "file.json: ops[0].cost: 1.5 is not a whole number");
  EXPECT_EQ(message_of(R"({"ops": [{"cost": "1"}]})", amount),
            "file.json: ops[0].cost: want a whole number");
  EXPECT_EQ(message_of(R"({"ops": [{"cost": 9223372036854775808}]})", amount),
            "file.json: ops[0].cost: 9223372036854775808 is too large: at most "
            "9223372036854775807");
  EXPECT_EQ(message_of(R"({"ops": [{}]})", amount),
            "file.json: ops[0]: the field 'cost' is missing");
  EXPECT_EQ(message_of(R"({"ops": 1})", amount), "file.json: ops: want an array");
  EXPECT_EQ(message_of("[]", amount), "file.json: want an object");
}

TEST(JsonValue, TakesWholeNumbersInAnySpelling) {
  const JsonDocument document(Text{"file.json", "[9223372036854775807, 120.0, 1e3, -0.0, 0]"});
  std::vector<std::int64_t> numbers;
  for (const JsonValue element : document.root().elements()) numbers.push_back(element.amount());
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{INT64_MAX, 120, 1000, 0, 0}));
}

TEST(AppendJsonString, EscapesWhatJsonHasTo) {
  std::string out;
  append_json_string(out, "a\"b\\c\nd é");
  EXPECT_EQ(out, R"("a\"b\\c\u000ad é")");
}

}  // namespace
}  // namespace reprise
