// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/core/units.h"
#include "reprise/formats/files.h"

namespace reprise {

class JsonValue;

// A parsed JSON text, held flat: one small node a value, in the order of the text. Refuses what is
// not JSON, nesting past 64 levels, more than 100 million values, and an object that has a key
// twice. Errors name the file, and the line and column or the JSON path.
class JsonDocument {
 public:
  explicit JsonDocument(const Text& text) : JsonDocument(text, text.name) {}
  // `name` is what messages with a path call the text: for JSON in a line of another file.
  JsonDocument(const Text& text, std::string name);
  JsonValue root() const;  // borrows the document

 private:
  friend class JsonValue;
  friend class JsonBuilder;

  enum class Kind : std::uint8_t { null, boolean, whole, other_number, string, array, object };
  struct Slice {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  struct Node {
    Kind kind{};
    std::uint32_t end = 0;     // of its descendants, who follow it
    std::uint32_t parent = 0;  // the root's is itself
    Slice key;                 // in an object
    union {
      std::int64_t number;  // whole, boolean
      Slice text;           // string; other_number as written
    };
    Node() : number(0) {}
  };

  std::string_view view(Slice slice) const {
    return std::string_view(characters_).substr(slice.begin, slice.size);
  }

  std::string name_;
  std::vector<Node> nodes_;
  std::string characters_;
};

// A place in a document. What is not of the kind asked for throws InputError with its path.
class JsonValue {
 public:
  bool is_object() const;
  bool is_null() const;
  bool is_string() const;
  bool is_whole() const;

  std::string_view string() const;
  bool boolean() const;
  std::int64_t whole() const;   // where is_whole()
  std::int64_t amount() const;  // a whole number from 0 on; 120.0 and 1e3 are whole
  Bytes bytes() const { return Bytes{amount()}; }
  Cost cost() const { return Cost{amount()}; }

  // The elements of an array, or the members of an object; each knows its key.
  class Children;
  Children elements() const;
  Children members() const;
  std::string_view key() const { return document_->view(node().key); }

  std::optional<JsonValue> find(std::string_view key) const;  // in an object
  JsonValue at(std::string_view key) const;                   // … where it has to be there

  // "net.json: ops[17].inputs[2]: " and the message.
  [[noreturn]] void fail(std::string_view message) const;
  // "unknown field 'wrokspace' (did you mean 'workspace'?)", of this member.
  [[noreturn]] void fail_unknown_field(std::initializer_list<std::string_view> known) const;

 private:
  friend class JsonDocument;
  friend class JsonBuilder;
  JsonValue(const JsonDocument& document, std::uint32_t index)
      : document_(&document), index_(index) {}
  const JsonDocument::Node& node() const { return document_->nodes_[index_]; }
  void want(JsonDocument::Kind kind, std::string_view words) const;
  std::string path() const;

  const JsonDocument* document_;
  std::uint32_t index_;
};

class JsonValue::Children {
 public:
  class Iterator {
   public:
    Iterator(const JsonDocument& document, std::uint32_t index)
        : document_(&document), index_(index) {}
    JsonValue operator*() const { return {*document_, index_}; }
    Iterator& operator++() {
      index_ = document_->nodes_[index_].end;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const JsonDocument* document_;
    std::uint32_t index_;
  };

  Iterator begin() const { return {*parent_.document_, parent_.index_ + 1}; }
  Iterator end() const { return {*parent_.document_, parent_.node().end}; }

 private:
  friend class JsonValue;
  explicit Children(JsonValue parent) : parent_(parent) {}
  JsonValue parent_;
};

// Appends `text` as a JSON string, in quotes.
void append_json_string(std::string& out, std::string_view text);

}  // namespace reprise
