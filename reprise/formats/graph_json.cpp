// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/graph_json.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <vector>

#include "reprise/formats/version.h"

namespace reprise {
namespace {

template <class Enum, std::size_t count>
Enum one_of(JsonValue json, const std::array<Enum, count>& all) {
  std::array<std::string_view, count> names;
  for (std::size_t i = 0; i < count; ++i) {
    names[i] = to_string(all[i]);
    if (json.string() == names[i]) return all[i];
  }
  json.fail(fmt::format("unknown {} {}{}: want one of {}", json.key(), in_quotes(json.string()),
                        did_you_mean(json.string(), names), fmt::join(names, ", ")));
}

// Reads values and ops into a builder, whose complaints get the path of what they are about.
class Reader {
 public:
  Reader(GraphBuilder& build, JsonValue root) : build_(build), root_(root) {}

  void read() {
    for (const JsonValue value : root_.at("values").elements()) read_value(value);
    for (const JsonValue op : root_.at("ops").elements()) read_op(op);
  }

  Graph finish() {
    try {
      return build_.done();
    } catch (const GraphError& error) {
      if (error.op) nth(root_.at("ops"), error.op->index).fail(error.what());
      if (error.value) nth(root_.at("values"), error.value->index).fail(error.what());
      root_.fail(error.what());
    }
  }

 private:
  static JsonValue nth(JsonValue array, std::size_t position) {
    auto element = array.elements().begin();
    for (; position > 0; --position) ++element;
    return *element;
  }

  void read_value(JsonValue json) {
    bool resident = false;
    bool keep = false;
    for (const JsonValue field : json.members()) {
      if (field.key() == "resident") {
        resident = field.boolean();
      } else if (field.key() == "keep") {
        keep = field.boolean();
      } else if (field.key() != "name" && field.key() != "bytes") {
        field.fail_unknown_field({"name", "bytes", "resident", "keep"});
      }
    }
    const std::string_view name = json.at("name").string();
    const Bytes bytes = json.at("bytes").bytes();
    const ValueId id = resident ? build_.resident(std::string(name), bytes)
                                : build_.value(std::string(name), bytes);
    if (keep) build_.keep(id);
    if (!values_.add(name)) {
      json.at("name").fail(fmt::format("the name {} is taken", in_quotes(name)));
    }
  }

  void read_op(JsonValue json) {
    const std::string_view name = json.at("name").string();
    auto op = build_.op(std::string(name));
    op.cost(json.at("cost").cost());
    for (const JsonValue input : json.at("inputs").elements()) op.reads({find_value(input)});
    for (const JsonValue output : json.at("outputs").elements()) {
      about(output, [&] { op.makes(find_value(output)); });
    }
    for (const JsonValue field : json.members()) read_optional_field(field, op);
    if (!ops_.add(name)) {
      json.at("name").fail(fmt::format("the name {} is taken", in_quotes(name)));
    }
  }

  void read_optional_field(JsonValue field, GraphBuilder::Op& op) {
    const std::string_view key = field.key();
    if (key == "workspace") {
      op.workspace(field.bytes());
    } else if (key == "phase") {
      op.phase(one_of(field, std::array{Phase::forward, Phase::loss, Phase::backward}));
    } else if (key == "gradient_of") {
      op.gradient_of(find_op(field));
    } else if (key == "recomputable") {
      if (!field.boolean()) op.never_again();
    } else if (key == "kind") {
      about(field, [&] { op.kind(std::string(field.string())); });
    } else if (key == "overwrites") {
      for (const JsonValue pair : field.members()) read_overwrite(pair, op);
    } else if (key != "name" && key != "cost" && key != "inputs" && key != "outputs") {
      field.fail_unknown_field({"name", "cost", "inputs", "outputs", "workspace", "phase",
                                "gradient_of", "recomputable", "kind", "overwrites"});
    }
  }

  void read_overwrite(JsonValue pair, GraphBuilder::Op& op) {
    const auto output = values_.find(pair.key());
    if (!output) pair.fail(fmt::format("unknown value {}", in_quotes(pair.key())));
    about(pair, [&] { op.overwrites(ValueId{*output}, find_value(pair)); });
  }

  ValueId find_value(JsonValue json) const {
    const auto found = values_.find(json.string());
    if (found) return ValueId{*found};
    json.fail(fmt::format("unknown value {}{}", in_quotes(json.string()), nearest(json, values_)));
  }

  OpId find_op(JsonValue json) const {
    const auto found = ops_.find(json.string());
    if (found) return OpId{*found};
    json.fail(
        fmt::format("no op {} before this one{}", in_quotes(json.string()), nearest(json, ops_)));
  }

  static std::string nearest(JsonValue json, const NameTable& names) {
    return did_you_mean(json.string(), names.names());
  }

  template <class Action>
  static void about(JsonValue json, Action action) {
    try {
      action();
    } catch (const GraphError& error) {
      json.fail(error.what());
    }
  }

  GraphBuilder& build_;
  JsonValue root_;
  NameTable values_;  // positions are ids
  NameTable ops_;
};

void append_names(std::string& out, const Graph& graph, std::span<const ValueId> values) {
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    append_json_string(out, graph.name(values[i]));
  }
  out += ']';
}

void append_value(std::string& out, const Graph& graph, ValueId value) {
  out += "{\"name\": ";
  append_json_string(out, graph.name(value));
  fmt::format_to(std::back_inserter(out), ", \"bytes\": {}", graph.bytes(value).count());
  if (graph.resident(value)) out += ", \"resident\": true";
  if (graph.kept(value)) out += ", \"keep\": true";
  out += '}';
}

void append_overwrites(std::string& out, const Graph& graph, OpId op) {
  bool first = true;
  for (const ValueId output : graph.outputs(op)) {
    const auto input = graph.overwritten(output);
    if (!input) continue;
    out += first ? ", \"overwrites\": {" : ", ";
    first = false;
    append_json_string(out, graph.name(output));
    out += ": ";
    append_json_string(out, graph.name(*input));
  }
  if (!first) out += '}';
}

void append_op(std::string& out, const Graph& graph, OpId op) {
  out += "{\"name\": ";
  append_json_string(out, graph.name(op));
  if (!graph.kind(op).empty()) {
    out += ", \"kind\": ";
    append_json_string(out, graph.kind(op));
  }
  if (graph.has_phases()) {
    fmt::format_to(std::back_inserter(out), ", \"phase\": \"{}\"", to_string(graph.phase(op)));
  }
  if (const auto forward = graph.gradient_of(op)) {
    out += ", \"gradient_of\": ";
    append_json_string(out, graph.name(*forward));
  }
  fmt::format_to(std::back_inserter(out), ", \"cost\": {}", graph.cost(op).count());
  if (graph.workspace(op) != Bytes{0}) {
    fmt::format_to(std::back_inserter(out), ", \"workspace\": {}", graph.workspace(op).count());
  }
  if (!graph.recomputable(op)) out += ", \"recomputable\": false";
  out += ", \"inputs\": ";
  append_names(out, graph, graph.inputs(op));
  out += ", \"outputs\": ";
  append_names(out, graph, graph.outputs(op));
  append_overwrites(out, graph, op);
  out += '}';
}

}  // namespace

Graph read_graph_json(const JsonDocument& document) {
  const JsonValue root = document.root();
  check_version(root, "reprise-graph");
  std::string name;
  CostUnit unit = CostUnit::units;
  for (const JsonValue field : root.members()) {
    const std::string_view key = field.key();
    if (key == "name") {
      name = field.string();
    } else if (key == "cost_unit") {
      unit = one_of(field, std::array{CostUnit::units, CostUnit::ns, CostUnit::flops});
    } else if (key != "format" && key != "version" && key != "values" && key != "ops") {
      field.fail_unknown_field({"format", "version", "name", "cost_unit", "values", "ops"});
    }
  }
  GraphBuilder build(name, unit);
  Reader reader(build, root);
  reader.read();
  return reader.finish();
}

std::string write_graph_json(const Graph& graph) {
  std::string out = "{\"format\": \"reprise-graph\", \"version\": 1, \"name\": ";
  append_json_string(out, graph.name());
  fmt::format_to(std::back_inserter(out), ", \"cost_unit\": \"{}\",\n\"values\": [",
                 to_string(graph.cost_unit()));
  for (const ValueId value : graph.values()) {
    out += value.index == 0 ? "\n " : ",\n ";
    append_value(out, graph, value);
  }
  out += "],\n\"ops\": [";
  for (const OpId op : graph.ops()) {
    out += op.index == 0 ? "\n " : ",\n ";
    append_op(out, graph, op);
  }
  out += "]}\n";
  return out;
}

}  // namespace reprise
