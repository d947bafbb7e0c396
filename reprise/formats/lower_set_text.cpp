// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/lower_set_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace reprise {
namespace {

using Variable = LowerSetFile::Variable;
using Function = LowerSetFile::Function;

// Turns a parsed file into a graph. Values of variables come first, so that a variable's number is
// its value's id.
class Translator {
 public:
  Translator(const LowerSetFile& file, const LowerSetOptions& options, const Text& text)
      : file_(file),
        options_(options),
        build_(name_of(text)),
        gradients_(file.bytes.size()),
        contributions_(file.bytes.size(), 0),
        seen_by_(file.bytes.size()) {}

  Graph translate() {
    for (Variable v = 0; v < file_.bytes.size(); ++v) {
      const std::string name = fmt::format("v{}", v);
      if (file_.is_source(v)) {
        build_.resident(name, file_.bytes[v]);
      } else {
        build_.value(name, file_.bytes[v]);
      }
    }
    std::vector<OpId> forward(file_.functions.size());
    for (const std::uint32_t number : file_.order) forward[number] = add_forward(number);
    for (auto number = file_.order.rbegin(); number != file_.order.rend(); ++number) {
      add_backward(*number, forward[*number]);
    }
    return build_.done();
  }

 private:
  // The file's name, where that can be a graph's.
  static std::string name_of(const Text& text) {
    std::string stem = std::filesystem::path(text.name).stem().string();
    return has_control_character(stem) || !is_utf8(stem) ? "" : stem;
  }

  OpId add_forward(std::uint32_t number) {
    const Function& function = file_.functions[number];
    auto op = build_.op(fmt::format("f{}.{}", number, function.type));
    op.phase(Phase::forward).kind(function.type);
    op.cost(function.cost()).reads(values(function.inputs));
    for (const Variable output : function.outputs) {
      op.makes(ValueId{output});
      if (file_.readers[output] != 0) continue;
      gradients_[output] = op.makes(fmt::format("g{}", output), Bytes{0});
    }
    return op.id();
  }

  void add_backward(std::uint32_t number, OpId forward) {
    const Function& function = file_.functions[number];
    std::vector<ValueId> reads;
    for (const Variable output : function.outputs) reads.push_back(*gradients_[output]);
    for (const Variable value : function.backward_reads) reads.push_back(ValueId{value});

    std::vector<Variable> nodes;
    std::vector<Variable> sources;
    for (const Variable input : function.inputs) {
      if (seen_by_[input] == number) {
        ++contributions_[input];  // f(x, x): one op makes both contributions
        continue;
      }
      seen_by_[input] = number;
      (file_.is_source(input) ? sources : nodes).push_back(input);
    }
    const auto add = [&](const std::string& what, std::span<const Variable> made) {
      auto op = build_.op(fmt::format("b{}.{}:{}", number, function.type, what));
      op.phase(Phase::backward).kind(function.type).gradient_of(forward).reads(reads);
      for (const Variable variable : made) contribute(op, variable);
    };
    for (const Variable node : nodes) add(fmt::format("g{}", node), {&node, 1});
    if (!sources.empty()) add("sources", sources);
  }

  // Adds to the gradient of `variable`, in the buffer of what was there.
  void contribute(GraphBuilder::Op& op, Variable variable) {
    const bool last = ++contributions_[variable] == file_.readers[variable];
    const std::string name = last ? fmt::format("g{}", variable)
                                  : fmt::format("g{}~{}", variable, contributions_[variable]);
    const bool counts = !file_.is_source(variable) || options_.source_gradients;
    const auto before = gradients_[variable];
    if (before) op.reads({*before});
    auto made = op.makes(name, counts ? file_.bytes[variable] : Bytes{0});
    if (before) made.over(*before);
    if (last && file_.is_source(variable)) made.kept();
    gradients_[variable] = made.id();
  }

  static std::vector<ValueId> values(std::span<const Variable> variables) {
    std::vector<ValueId> ids;
    for (const Variable variable : variables) ids.push_back(ValueId{variable});
    return ids;
  }

  const LowerSetFile& file_;
  const LowerSetOptions& options_;
  GraphBuilder build_;
  std::vector<std::optional<ValueId>> gradients_;      // of a variable, so far
  std::vector<std::uint32_t> contributions_;           // to it, so far
  std::vector<std::optional<std::uint32_t>> seen_by_;  // of a variable: the last function
};

}  // namespace

Graph read_lower_set_text(const Text& text, const LowerSetOptions& options) {
  const LowerSetFile file = parse_lower_set_file(text, options.reads);
  try {
    return Translator(file, options, text).translate();
  } catch (const GraphError& error) {
    throw InputError(fmt::format("{}: {}", text.name, error.what()));
  }
}

}  // namespace reprise
