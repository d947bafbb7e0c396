// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

namespace reprise {

// Receives nlohmann's parse events and lays the nodes down.
class JsonBuilder {
 public:
  JsonBuilder(JsonDocument& document, const Text& text) : document_(document), text_(text) {}

  bool null() { return add(JsonDocument::Kind::null); }
  bool boolean(bool value) { return add(JsonDocument::Kind::boolean, value ? 1 : 0); }
  bool number_integer(std::int64_t value) { return add(JsonDocument::Kind::whole, value); }
  bool number_unsigned(std::uint64_t value) {
    if (value > std::uint64_t{INT64_MAX}) return number_float(0, std::to_string(value));
    return add(JsonDocument::Kind::whole, static_cast<std::int64_t>(value));
  }
  bool number_float(double, const std::string& written) {
    return add(JsonDocument::Kind::other_number, store(written));
  }
  bool string(const std::string& value) { return add(JsonDocument::Kind::string, store(value)); }
  bool binary(const nlohmann::json::binary_t&) { return false; }

  bool start_object(std::size_t) { return open(JsonDocument::Kind::object); }
  bool start_array(std::size_t) { return open(JsonDocument::Kind::array); }
  bool key(const std::string& name) {
    key_ = store(name);
    return true;
  }
  bool end_array() { return close(); }
  bool end_object() {
    refuse_repeated_keys();
    return close();
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) {
    constexpr std::size_t kLongest = 300;
    throw InputError(fmt::format("{}:{}: {}", text_.name, place(position),
                                 printable(words(error.what()), kLongest)));
  }

 private:
  static constexpr std::size_t kDeepest = 64;
  static constexpr std::size_t kMostValues = 100'000'000;

  JsonDocument::Slice store(std::string_view text) {
    const JsonDocument::Slice slice{static_cast<std::uint32_t>(document_.characters_.size()),
                                    static_cast<std::uint32_t>(text.size())};
    document_.characters_ += text;
    return slice;
  }

  JsonDocument::Node& lay(JsonDocument::Kind kind) {
    const std::size_t index = document_.nodes_.size();
    if (index == kMostValues) {
      throw InputError(fmt::format("{}: more than {} JSON values", document_.name_, kMostValues));
    }
    JsonDocument::Node node;
    node.kind = kind;
    node.end = static_cast<std::uint32_t>(index + 1);
    node.parent = open_.empty() ? 0 : open_.back();
    node.key = std::exchange(key_, {});
    return document_.nodes_.emplace_back(node);
  }

  bool add(JsonDocument::Kind kind, std::int64_t number = 0) {
    lay(kind).number = number;
    return true;
  }
  bool add(JsonDocument::Kind kind, JsonDocument::Slice text) {
    lay(kind).text = text;
    return true;
  }

  bool open(JsonDocument::Kind kind) {
    if (open_.size() == kDeepest) {
      JsonValue(document_, open_.back())
          .fail(fmt::format("JSON nested deeper than {} levels", kDeepest));
    }
    const auto index = static_cast<std::uint32_t>(document_.nodes_.size());
    lay(kind);
    open_.push_back(index);
    return true;
  }

  bool close() {
    document_.nodes_[open_.back()].end = static_cast<std::uint32_t>(document_.nodes_.size());
    open_.pop_back();
    return true;
  }

  void refuse_repeated_keys() {
    constexpr std::size_t kFew = 16;  // up to here looking through them beats a table
    const std::uint32_t object = open_.back();
    document_.nodes_[object].end = static_cast<std::uint32_t>(document_.nodes_.size());
    few_keys_.clear();
    std::unordered_set<std::string_view> many;
    for (const JsonValue member : JsonValue(document_, object).members()) {
      const std::string_view key = member.key();
      bool repeated = std::find(few_keys_.begin(), few_keys_.end(), key) != few_keys_.end();
      if (few_keys_.size() < kFew) {
        few_keys_.push_back(key);
      } else {
        repeated = repeated || !many.insert(key).second;
      }
      if (repeated) member.fail("the key is there twice");
    }
  }

  // Line and column of what was read last, once `position` characters were.
  std::string place(std::size_t position) const {
    const std::string_view read = std::string_view(text_.content).substr(0, position);
    const auto lines = static_cast<std::size_t>(std::count(read.begin(), read.end(), '\n'));
    const std::size_t line_begin = read.rfind('\n') + 1;  // npos + 1 is the first line's
    return fmt::format("{}:{}", text_.first_line + lines, position - line_begin);
  }

  // From "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error …" to
  // "syntax error …".
  static std::string_view words(std::string_view what) {
    if (const auto tag = what.find("] "); tag != what.npos) what.remove_prefix(tag + 2);
    constexpr std::string_view kAt = "parse error at ";
    if (what.substr(0, kAt.size()) == kAt) what.remove_prefix(what.find(": ") + 2);
    return what;
  }

  JsonDocument& document_;
  const Text& text_;
  std::vector<std::uint32_t> open_;
  JsonDocument::Slice key_;
  std::vector<std::string_view> few_keys_;
};

JsonDocument::JsonDocument(const Text& text, std::string name) : name_(std::move(name)) {
  JsonBuilder builder(*this, text);
  nlohmann::json::sax_parse(text.content.begin(), text.content.end(), &builder);
}

JsonValue JsonDocument::root() const { return {*this, 0}; }

bool JsonValue::is_object() const { return node().kind == JsonDocument::Kind::object; }
bool JsonValue::is_null() const { return node().kind == JsonDocument::Kind::null; }
bool JsonValue::is_string() const { return node().kind == JsonDocument::Kind::string; }
bool JsonValue::is_whole() const { return node().kind == JsonDocument::Kind::whole; }

namespace {

// A JSON number as digits × 10^exponent, without zeros at either end of the digits.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;
};

Decimal decimal(std::string_view written) {
  Decimal number;
  number.negative = written.front() == '-';
  if (number.negative) written.remove_prefix(1);
  if (const auto e = written.find_first_of("eE"); e != written.npos) {
    std::string_view power = written.substr(e + 1);
    if (power.front() == '+') power.remove_prefix(1);
    const auto read = std::from_chars(power.data(), power.data() + power.size(), number.exponent);
    constexpr std::int64_t kFar = std::int64_t{1} << 40;  // further than a text has digits
    if (read.ec != std::errc{}) number.exponent = power.front() == '-' ? -kFar : kFar;
    number.exponent = std::clamp(number.exponent, -kFar, kFar);
    written = written.substr(0, e);
  }
  const auto point = std::min(written.find('.'), written.size());
  number.digits = written.substr(0, point);
  if (point < written.size()) number.digits += written.substr(point + 1);
  number.exponent -= static_cast<std::int64_t>(number.digits.size() - point);
  while (!number.digits.empty() && number.digits.back() == '0') {
    number.digits.pop_back();
    ++number.exponent;
  }
  number.digits.erase(0, std::min(number.digits.find_first_not_of('0'), number.digits.size()));
  return number;
}

}  // namespace

void JsonValue::want(JsonDocument::Kind kind, std::string_view words) const {
  if (node().kind != kind) fail(fmt::format("want {}", words));
}

std::string_view JsonValue::string() const {
  want(JsonDocument::Kind::string, "a string");
  return document_->view(node().text);
}

bool JsonValue::boolean() const {
  want(JsonDocument::Kind::boolean, "true or false");
  return node().number != 0;
}

std::int64_t JsonValue::whole() const {
  want(JsonDocument::Kind::whole, "a whole number");
  return node().number;
}

std::int64_t JsonValue::amount() const {
  if (node().kind == JsonDocument::Kind::whole) {
    if (node().number < 0) fail(fmt::format("{} is below zero", node().number));
    return node().number;
  }
  want(JsonDocument::Kind::other_number, "a whole number");
  const std::string_view written = document_->view(node().text);
  const auto refuse = [&](std::string_view why) {
    fail(fmt::format("{} {}", printable(written, 40), why));
  };
  const Decimal number = decimal(written);
  if (number.digits.empty()) return 0;
  if (number.negative) refuse("is below zero");
  if (number.exponent < 0) refuse("is not a whole number");
  constexpr std::size_t kMostDigits = 19;
  std::int64_t amount = 0;
  if (number.digits.size() + static_cast<std::size_t>(number.exponent) <= kMostDigits) {
    const std::string digits =
        number.digits + std::string(static_cast<std::size_t>(number.exponent), '0');
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), amount);
    if (read.ec == std::errc{}) return amount;
  }
  refuse("is too large: at most 9223372036854775807");
  return amount;
}

JsonValue::Children JsonValue::elements() const {
  want(JsonDocument::Kind::array, "an array");
  return Children(*this);
}

JsonValue::Children JsonValue::members() const {
  want(JsonDocument::Kind::object, "an object");
  return Children(*this);
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  for (const JsonValue member : members()) {
    if (member.key() == key) return member;
  }
  return std::nullopt;
}

JsonValue JsonValue::at(std::string_view key) const {
  const auto member = find(key);
  if (!member) fail(fmt::format("the field {} is missing", in_quotes(key)));
  return *member;
}

std::string JsonValue::path() const {
  std::string path;
  JsonValue place = *this;
  while (place.index_ != 0) {
    const JsonValue parent(*document_, place.node().parent);
    if (parent.is_object()) {
      std::string key = in_quotes(place.key());
      path.insert(0, (parent.index_ == 0 ? "" : ".") + key.substr(1, key.size() - 2));
    } else {
      std::size_t position = 0;  // the parent may be unfinished, so its end says nothing
      for (auto element = Children(parent).begin(); (*element).index_ != place.index_; ++element) {
        ++position;
      }
      path.insert(0, fmt::format("[{}]", position));
    }
    place = parent;
  }
  return path;
}

void JsonValue::fail(std::string_view message) const {
  const std::string place = printable(path(), 80);
  throw InputError(
      fmt::format("{}: {}{}{}", document_->name_, place, place.empty() ? "" : ": ", message));
}

void JsonValue::fail_unknown_field(std::initializer_list<std::string_view> known) const {
  fail("unknown field" + did_you_mean(key(), {known.begin(), known.size()}));
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace reprise
