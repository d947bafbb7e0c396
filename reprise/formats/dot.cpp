// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/dot.h"

#include <fmt/core.h>

#include <iterator>
#include <optional>

#include "reprise/core/budget.h"

namespace reprise {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string_view fill(const Graph& graph, OpId op) {
  if (!graph.has_phases()) return "#f2f2f2";
  switch (graph.phase(op)) {
    case Phase::forward: return "#dbe9f6";
    case Phase::loss: return "#fde9c9";
    case Phase::backward: return "#e3f1df";
  }
  return "";
}

}  // namespace

std::string write_dot(const Graph& graph) {
  std::string out;
  const auto write = std::back_inserter(out);
  fmt::format_to(write,
                 "digraph \"{}\" {{\n"
                 "  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=10];\n"
                 "  edge [fontname=\"Helvetica\", fontsize=8];\n",
                 escaped(graph.name()));
  for (const OpId op : graph.ops()) {
    fmt::format_to(write, "  op{} [label=\"{}\\ncost {}\", fillcolor=\"{}\"{}];\n", op.index,
                   escaped(graph.name(op)), graph.cost(op).count(), fill(graph, op),
                   graph.recomputable(op) ? "" : ", penwidth=2");
  }
  const auto label = [&](ValueId value) {
    return fmt::format("{}\\n{}", escaped(graph.name(value)), to_words(graph.bytes(value)));
  };
  IdVector<ValueId, std::optional<OpId>> overwriter(graph.values().size());  // the last one seen
  for (const OpId op : graph.ops()) {
    for (const ValueId output : graph.outputs(op)) {
      if (const auto input = graph.overwritten(output)) overwriter[*input] = op;
    }
    for (const ValueId input : graph.inputs(op)) {
      const auto producer = graph.producer(input);
      if (!producer) continue;
      fmt::format_to(write, "  op{} -> op{} [label=\"{}\"{}];\n", producer->index, op.index,
                     label(input), overwriter[input] == op ? ", style=dashed" : "");
    }
  }
  for (const ValueId value : graph.values()) {
    if (!graph.kept(value) || graph.resident(value)) continue;
    fmt::format_to(write,
                   "  value{} [label=\"{}\", shape=note, fillcolor=\"#ffffff\"];\n"
                   "  op{} -> value{};\n",
                   value.index, label(value), graph.producer(value)->index, value.index);
  }
  out += "}\n";
  return out;
}

}  // namespace reprise
