// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/graph_formats.h"

#include <fmt/core.h>

#include "reprise/formats/dot.h"
#include "reprise/formats/graph_json.h"
#include "reprise/formats/json.h"
#include "reprise/formats/node_link.h"

namespace reprise {
namespace {

[[noreturn]] void refuse(const Text& text, std::string_view why) {
  throw InputError(fmt::format("{}: {}", text.name, why));
}

bool looks_like_json(const Text& text) {
  return !text.content.empty() && (text.content.front() == '{' || text.content.front() == '[');
}

bool looks_like_lower_set(const Text& text) {
  return !text.content.empty() && text.content.front() >= '0' && text.content.front() <= '9';
}

Graph read_json(const Text& text) {
  const JsonDocument document(text);
  const JsonValue root = document.root();
  if (root.is_object() && root.find("format")) return read_graph_json(document);
  if (root.is_object() && root.find("nodes")) return read_node_link(document);
  refuse(text, "JSON without \"format\" (reprise-graph) and without \"nodes\" (node-link)");
}

}  // namespace

std::string_view to_string(GraphFormat format) {
  switch (format) {
    case GraphFormat::reprise_graph: return "reprise-graph";
    case GraphFormat::node_link: return "node-link";
    case GraphFormat::lower_set: return "lower-set";
    case GraphFormat::dot: return "dot";
  }
  return "";
}

Graph read_graph(const Text& text, std::optional<GraphFormat> format,
                 const LowerSetOptions& options) {
  if (!format) {
    if (looks_like_json(text)) return read_json(text);
    if (looks_like_lower_set(text)) return read_lower_set_text(text, options);
    throw InputError(
        fmt::format("{}:{}: neither JSON nor lower-set text", text.name, text.first_line));
  }
  switch (*format) {
    case GraphFormat::reprise_graph: return read_graph_json(JsonDocument(text));
    case GraphFormat::node_link: return read_node_link(JsonDocument(text));
    case GraphFormat::lower_set: return read_lower_set_text(text, options);
    case GraphFormat::dot: break;
  }
  refuse(text, "dot is written only");
}

std::string write_graph(const Graph& graph, GraphFormat format) {
  switch (format) {
    case GraphFormat::reprise_graph: return write_graph_json(graph);
    case GraphFormat::node_link: return write_node_link(graph);
    case GraphFormat::lower_set: return write_lower_set_text(graph);
    case GraphFormat::dot: break;
  }
  return write_dot(graph);
}

}  // namespace reprise
