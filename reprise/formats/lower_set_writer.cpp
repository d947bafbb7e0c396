// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "reprise/formats/lower_set_text.h"

namespace reprise {
namespace {

// What the format calls a forward function: an op and the one value it makes.
struct Function {
  OpId op;
  ValueId output;
  std::vector<ValueId> inputs;           // those that are variables
  std::vector<std::size_t> inputs_read;  // positions that the backward function reads
  bool output_read = false;              // … and whether it reads the output
};

std::vector<Function> forward_functions(const Graph& graph) {
  if (!graph.has_phases()) {
    throw InputError("lower-set text needs a graph with phases, to tell which ops are forward");
  }
  std::vector<Function> functions;
  const auto refuse = [&](OpId op, std::string_view what) {
    throw InputError(fmt::format("lower-set text can't say that forward op {} {}",
                                 in_quotes(graph.name(op)), what));
  };
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::backward) continue;
    if (graph.workspace(op) != Bytes{0}) refuse(op, "has a workspace");
    if (!graph.recomputable(op)) refuse(op, "may not run again");
    std::vector<ValueId> made;
    for (const ValueId output : graph.outputs(op)) {
      if (graph.overwritten(output)) refuse(op, "overwrites an input");
      if (graph.bytes(output) != Bytes{0}) made.push_back(output);
      for (const OpId reader : graph.consumers(output)) {
        const bool tie = graph.bytes(output) == Bytes{0} && graph.phase(reader) != Phase::backward;
        if (tie) refuse(op, "is tied to another by a value of no bytes");
      }
    }
    if (made.size() != 1) refuse(op, fmt::format("makes {} values", made.size()));
    functions.push_back({op, made[0], {}, {}, false});
  }
  return functions;
}

// Numbers the variables: resident values and what forward functions make, in the graph's order.
IdVector<ValueId, std::optional<std::size_t>> number_variables(
    const Graph& graph, const std::vector<Function>& functions) {
  ValueSet is_variable(graph.values().size(), false);
  for (const Function& function : functions) is_variable[function.output] = true;
  IdVector<ValueId, std::optional<std::size_t>> numbers(graph.values().size());
  std::size_t count = 0;
  for (const ValueId value : graph.values()) {
    if (is_variable[value] || graph.resident(value)) numbers[value] = count++;
  }
  return numbers;
}

void find_reads(const Graph& graph, std::vector<Function>& functions) {
  IdVector<OpId, std::vector<ValueId>> gradient_reads(graph.ops().size());
  OpSet has_gradient(graph.ops().size(), false);
  for (const OpId op : graph.ops()) {
    const auto forward = graph.gradient_of(op);
    if (!forward) continue;
    has_gradient[*forward] = true;
    const auto inputs = graph.inputs(op);
    gradient_reads[*forward].insert(gradient_reads[*forward].end(), inputs.begin(), inputs.end());
  }
  for (Function& function : functions) {
    std::vector<ValueId>& reads = gradient_reads[function.op];
    std::sort(reads.begin(), reads.end());
    const auto is_read = [&](ValueId value) {
      return std::binary_search(reads.begin(), reads.end(), value);
    };
    for (std::size_t i = 0; i < function.inputs.size(); ++i) {
      if (!has_gradient[function.op] || is_read(function.inputs[i])) {
        function.inputs_read.push_back(i);
      }
    }
    // Without inputs there is no gradient to make, so its backward reads nothing.
    function.output_read = !function.inputs.empty() && is_read(function.output);
  }
}

std::string type_of(const Graph& graph, OpId op) {
  std::string type = graph.kind(op).empty() ? graph.name(op) : graph.kind(op);
  std::replace(type.begin(), type.end(), ' ', '_');
  return type;
}

}  // namespace

std::string write_lower_set_text(const Graph& graph) {
  std::vector<Function> functions = forward_functions(graph);
  const auto numbers = number_variables(graph, functions);
  for (Function& function : functions) {
    for (const ValueId input : graph.inputs(function.op)) {
      if (numbers[input]) function.inputs.push_back(input);
    }
  }
  find_reads(graph, functions);

  std::string variables;
  std::string forward;
  std::string backward;
  std::size_t count = 0;
  for (const ValueId value : graph.values()) {
    if (!numbers[value]) continue;
    const std::string name = graph.resident(value) ? fmt::format("/{}", count) : "_";
    fmt::format_to(std::back_inserter(variables), "{} {} {}\n", count++, graph.bytes(value).count(),
                   name);
  }
  for (std::size_t rank = 0; rank < functions.size(); ++rank) {
    const Function& function = functions[rank];
    const std::size_t output = *numbers[function.output];
    const std::string tail = fmt::format(
        "{}\n{{\"_input_indexes_to_retain\": [{}], \"_output_indexes_to_retain\": [{}], "
        "\"rank\": {}}}\n",
        type_of(graph, function.op), fmt::join(function.inputs_read, ", "),
        function.output_read ? "0" : "", rank);

    const auto to_forward = std::back_inserter(forward);
    fmt::format_to(to_forward, "forward\n{} 1\n", function.inputs.size());
    for (const ValueId input : function.inputs)
      fmt::format_to(to_forward, "{} _\n", *numbers[input]);
    fmt::format_to(to_forward, "{}\n{}", output, tail);

    const auto to_backward = std::back_inserter(backward);
    fmt::format_to(to_backward, "backward\n{} {}\n{} gradient\n",
                   1 + function.inputs_read.size() + (function.output_read ? 1 : 0),
                   function.inputs.size(), output);
    for (const std::size_t i : function.inputs_read) {
      fmt::format_to(to_backward, "{} input\n", *numbers[function.inputs[i]]);
    }
    if (function.output_read) fmt::format_to(to_backward, "{} output\n", output);
    for (const ValueId input : function.inputs) {
      fmt::format_to(to_backward, "{}\n", *numbers[input]);
    }
    backward += tail;
  }
  return fmt::format("{} {}\n{}{}{}", count, functions.size() * 2, variables, forward, backward);
}

}  // namespace reprise
