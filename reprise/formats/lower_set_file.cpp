// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/lower_set_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "reprise/core/topology.h"
#include "reprise/formats/json.h"

namespace reprise {
namespace {

using Variable = LowerSetFile::Variable;
using Function = LowerSetFile::Function;

// A set of variables that is emptied in no time: a member has the stamp of this round.
class Marks {
 public:
  void begin(std::size_t count) {
    stamps_.resize(count, 0);
    ++round_;
  }
  void add(std::span<const Variable> variables) {
    for (const Variable variable : variables) stamps_[variable] = round_;
  }
  bool has(Variable variable) const { return stamps_[variable] == round_; }

 private:
  std::vector<std::size_t> stamps_;
  std::size_t round_ = 0;
};

class Parser {
 public:
  Parser(const Text& text, LowerSetFile::Reads reads)
      : text_(text), reads_(reads), rest_(text.content), line_(text.first_line - 1) {}

  LowerSetFile parse() {
    const auto header =
        fields(next_line("the header"), 2, "N M, the numbers of variables and functions");
    const std::int64_t variables = number(header[0]);
    const std::int64_t functions = number(header[1]);
    if (functions % 2 != 0) {
      fail(fmt::format("{} functions: want as many backward as forward ones", functions));
    }
    for (std::int64_t i = 0; i < variables; ++i) parse_variable(i);
    file_.producers.resize(file_.bytes.size());
    file_.readers.resize(file_.bytes.size());
    for (std::int64_t i = 0; i < functions / 2; ++i) parse_forward();
    for (Function& forward : file_.functions) parse_backward(forward);
    while (!rest_.empty()) {
      if (!take_line().empty()) fail("text after the last function");
    }
    find_order();
    return std::move(file_);
  }

 private:
  std::string place() const { return fmt::format("{}:{}", text_.name, line_); }

  [[noreturn]] void fail(std::string_view why) const {
    throw InputError(fmt::format("{}: {}", place(), why));
  }

  std::string_view take_line() {
    ++line_;
    const auto end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) {
      line.remove_suffix(1);
    }
    return line;
  }

  std::string_view next_line(std::string_view what) {
    if (rest_.empty()) {
      ++line_;
      fail(fmt::format("the file ends where {} should be", what));
    }
    return take_line();
  }

  std::vector<std::string_view> fields(std::string_view line, std::size_t count,
                                       std::string_view what) const {
    std::vector<std::string_view> parts;
    for (std::string_view rest = line; !rest.empty();) {
      const auto end = std::min(rest.find(' '), rest.size());
      if (end > 0) parts.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (parts.size() != count) fail(fmt::format("{}: want {}", in_quotes(line), what));
    return parts;
  }

  std::int64_t number(std::string_view word) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc::result_out_of_range) {
      fail(fmt::format("{} does not fit into 64 bits", word.substr(0, 40)));
    }
    if (error != std::errc{} || end != word.data() + word.size()) {
      fail(fmt::format("{} is not a whole number", in_quotes(word)));
    }
    if (value < 0) fail(fmt::format("{} is below zero", value));
    return value;
  }

  Variable variable(std::string_view word) const {
    const std::int64_t id = number(word);
    if (id >= static_cast<std::int64_t>(file_.bytes.size())) {
      fail(fmt::format("there is no variable {}: ids end at {}", id,
                       static_cast<std::int64_t>(file_.bytes.size()) - 1));
    }
    return static_cast<Variable>(id);
  }

  void parse_variable(std::int64_t id) {
    const auto parts = fields(next_line("a variable"), 3, "id, bytes, name");
    if (number(parts[0]) != id)
      fail(fmt::format("variable {} stands where {} should", parts[0], id));
    file_.bytes.emplace_back(number(parts[1]));
  }

  // The two numbers behind `forward` or `backward`.
  std::pair<std::int64_t, std::int64_t> parse_head(std::string_view word) {
    const std::string_view line = next_line(fmt::format("a {} function", word));
    if (line != word) fail(fmt::format("{}: want {}", in_quotes(line), word));
    const auto counts = fields(next_line("the numbers of inputs and outputs"), 2,
                               "the numbers of inputs and outputs");
    return {number(counts[0]), number(counts[1])};
  }

  std::string parse_type() {
    const std::string_view type = next_line("a type name");
    if (type.empty() || has_control_character(type) || !is_utf8(type) ||
        type.find(' ') != type.npos) {
      fail(fmt::format("{} is not a type name", in_quotes(type)));
    }
    return std::string(type);
  }

  void parse_forward() {
    Function function;
    function.line = line_ + 1;
    const auto number = static_cast<std::uint32_t>(file_.functions.size());
    const auto [inputs, outputs] = parse_head("forward");
    if (outputs < 1) fail("a forward function has an output");
    for (std::int64_t i = 0; i < inputs; ++i) {
      const auto parts = fields(next_line("an input"), 2, "an input: id _");
      if (parts[1] != "_") fail(fmt::format("tag {}: want _", in_quotes(parts[1])));
      const Variable input = variable(parts[0]);
      function.inputs.push_back(input);
      ++file_.readers[input];
    }
    for (std::int64_t i = 0; i < outputs; ++i) {
      const Variable output = variable(fields(next_line("an output"), 1, "an output: id")[0]);
      if (const auto other = file_.producers[output]) {
        fail(fmt::format("variable {} has two producers, functions {} and {}", output, *other,
                         number));
      }
      file_.producers[output] = number;
      function.outputs.push_back(output);
    }
    function.type = parse_type();
    parse_attributes(function);
    file_.functions.push_back(std::move(function));
  }

  void parse_attributes(Function& function) {
    const std::string_view line = next_line("a JSON object");
    const JsonDocument document(Text{text_.name, std::string(line), line_}, place());
    const JsonValue root = document.root();
    if (!root.is_object()) fail("want a JSON object");
    if (const auto rank = root.find("rank"); rank && !rank->is_null()) {
      function.rank = rank->amount();
    }
    if (reads_ == LowerSetFile::Reads::listed) return;
    add_retained(root, "_input_indexes_to_retain", function.inputs, function.backward_reads);
    add_retained(root, "_output_indexes_to_retain", function.outputs, function.backward_reads);
  }

  void add_retained(JsonValue root, std::string_view key, std::span<const Variable> from,
                    std::vector<Variable>& reads) const {
    const auto positions = root.find(key);
    if (!positions || positions->is_null()) return;
    for (const JsonValue json : positions->elements()) {
      const std::int64_t position = json.amount();
      if (position >= static_cast<std::int64_t>(from.size())) {
        fail(fmt::format("{}: position {} of {}", key, position, from.size()));
      }
      reads.push_back(from[static_cast<std::size_t>(position)]);
    }
  }

  LowerSetFile::Tag parse_tag(std::string_view word) const {
    if (word == "gradient") return LowerSetFile::Tag::gradient;
    if (word == "input") return LowerSetFile::Tag::input;
    if (word == "output") return LowerSetFile::Tag::output;
    fail(fmt::format("tag {}: want gradient, input or output", in_quotes(word)));
  }

  void parse_backward(Function& forward) {
    const auto [inputs, outputs] = parse_head("backward");
    bool has_gradient = false;
    inputs_.begin(file_.bytes.size());
    inputs_.add(forward.inputs);
    outputs_.begin(file_.bytes.size());
    outputs_.add(forward.outputs);
    for (std::int64_t i = 0; i < inputs; ++i) {
      const auto parts = fields(next_line("an input"), 2, "an input: id tag");
      const Variable read = variable(parts[0]);
      const LowerSetFile::Tag tag = parse_tag(parts[1]);
      const bool of_output = tag != LowerSetFile::Tag::input;
      if (!(of_output ? outputs_ : inputs_).has(read)) {
        fail(fmt::format("variable {} is no {} of the forward function in line {}", read,
                         of_output ? "output" : "input", forward.line));
      }
      forward.backward_lists.push_back({read, tag});
      if (tag == LowerSetFile::Tag::gradient) {
        has_gradient = true;
      } else if (reads_ == LowerSetFile::Reads::listed) {
        forward.backward_reads.push_back(read);
      }
    }
    if (!has_gradient) fail("a backward function reads the gradient of a forward output");
    std::vector<Variable> made;
    for (std::int64_t i = 0; i < outputs; ++i) {
      made.push_back(variable(fields(next_line("an output"), 1, "an output: id")[0]));
    }
    if (made != forward.inputs) {
      fail(fmt::format("the outputs are not the inputs of the forward function in line {}",
                       forward.line));
    }
    if (const std::string type = parse_type(); type != forward.type) {
      fail(fmt::format("type {}, but the forward function in line {} is {}", type, forward.line,
                       forward.type));
    }
    const std::string_view line = next_line("a JSON object");
    const JsonDocument document(Text{text_.name, std::string(line), line_}, place());
    if (!document.root().is_object()) fail("want a JSON object");
  }

  void find_order() {
    std::vector<Digraph::Edge> edges;
    std::vector<std::int64_t> ranks;
    for (std::uint32_t number = 0; number < file_.functions.size(); ++number) {
      for (const Variable input : file_.functions[number].inputs) {
        if (const auto from = file_.producers[input]) edges.push_back({*from, number});
      }
      ranks.push_back(file_.functions[number].rank.value_or(0));
    }
    const Digraph digraph(file_.functions.size(), edges);
    if (auto order = topological_order(digraph, ranks)) {
      file_.order = *std::move(order);
      return;
    }
    const auto cycle = find_cycle(digraph);
    const auto name = [this](std::uint32_t number) {
      return fmt::format("f{}.{}", number, file_.functions[number].type);
    };
    throw InputError(fmt::format("{}:{}: the functions form a cycle: {}", text_.name,
                                 file_.functions[cycle.front()].line, cycle_text(cycle, name)));
  }

  const Text& text_;
  LowerSetFile::Reads reads_;
  std::string_view rest_;
  std::size_t line_;
  LowerSetFile file_;
  Marks inputs_;  // of the forward function whose backward is read
  Marks outputs_;
};

}  // namespace

LowerSetFile parse_lower_set_file(const Text& text, LowerSetFile::Reads reads) {
  return Parser(text, reads).parse();
}

}  // namespace reprise
