// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/node_link.h"

#include <fmt/format.h>

#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reprise/core/topology.h"

namespace reprise {
namespace {

// The first of `keys` that `json` has.
std::optional<JsonValue> find_any(JsonValue json, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const auto found = json.find(key)) return found;
  }
  return std::nullopt;
}

JsonValue at_any(JsonValue json, std::initializer_list<std::string_view> keys) {
  if (const auto found = find_any(json, keys)) return *found;
  json.fail(fmt::format("want a field {}", fmt::join(keys, " or ")));
}

// A node's name or id: text, or a whole number as decimal text.
std::string label(JsonValue json) {
  if (json.is_whole()) return std::to_string(json.whole());
  if (!json.is_string()) json.fail("want a string or a whole number");
  return std::string(json.string());
}

// An id as a table key: the number 7 and the string "7" are different nodes.
std::string id_key(JsonValue json) { return (json.is_string() ? "s" : "n") + label(json); }

Cost scaled_cost(JsonValue json) {
  if (json.is_whole()) return json.cost();
  try {
    return json.cost();
  } catch (const InputError& error) {
    throw InputError(fmt::format("{} (scale the costs to whole numbers)", error.what()));
  }
}

struct Node {
  std::string name;
  Bytes bytes;
  Cost cost;
  std::optional<bool> backward;
};

class Reader {
 public:
  explicit Reader(JsonValue root) : root_(root) {}

  Graph read() {
    if (const auto directed = root_.find("directed"); directed && !directed->boolean()) {
      directed->fail("the graph has to be directed");
    }
    for (const JsonValue node : root_.at("nodes").elements()) read_node(node);
    for (const JsonValue link : at_any(root_, {"links", "edges"}).elements()) read_link(link);
    return build(program_order());
  }

 private:
  void read_node(JsonValue json) {
    const auto name = json.find("name");
    const auto id = json.find("id");
    if (!name && !id) json.fail("want a field name or id");
    Node node{label(name ? *name : *id), at_any(json, {"cost_ram", "out_cost"}).bytes(),
              scaled_cost(at_any(json, {"cost_cpu", "duration"})), std::nullopt};
    if (const auto backward = json.find("backward")) node.backward = backward->boolean();
    const auto number = static_cast<std::uint32_t>(nodes_.size());
    if (!numbers_.emplace(id_key(id ? *id : *name), number).second) json.fail("the id is taken");
    nodes_.push_back(std::move(node));
    places_.push_back(json);
  }

  void read_link(JsonValue json) {
    links_.push_back(
        {find_node(at_any(json, {"source", "0"})), find_node(at_any(json, {"target", "1"}))});
  }

  std::uint32_t find_node(JsonValue id) const {
    const auto found = numbers_.find(id_key(id));
    if (found == numbers_.end()) id.fail(fmt::format("unknown node {}", in_quotes(label(id))));
    return found->second;
  }

  std::vector<std::uint32_t> program_order() const {
    const Digraph digraph(nodes_.size(), links_);
    const auto order = topological_order(digraph);
    if (!order) {
      const auto cycle = find_cycle(digraph);
      places_[cycle.front()].fail(
          "the links form a cycle: " +
          cycle_text(cycle, [this](std::uint32_t node) { return nodes_[node].name; }));
    }
    const auto attributes = root_.find("graph");
    if (!attributes || !attributes->is_object()) return *order;
    const auto given = attributes->find("order");
    return given ? given_order(*given) : *order;
  }

  std::vector<std::uint32_t> given_order(JsonValue json) const {
    std::vector<std::uint32_t> order;
    std::vector<bool> listed(nodes_.size(), false);
    for (const JsonValue id : json.elements()) {
      const std::uint32_t node = find_node(id);
      if (listed[node]) id.fail(fmt::format("node {} is listed twice", in_quotes(label(id))));
      listed[node] = true;
      order.push_back(node);
    }
    if (order.size() != nodes_.size()) {
      json.fail(fmt::format("{} of {} nodes are listed", order.size(), nodes_.size()));
    }
    return order;
  }

  Graph build(const std::vector<std::uint32_t>& order) const {
    const auto attributes = root_.find("graph");
    const auto name = attributes && attributes->is_object() ? attributes->find("name")
                                                            : std::optional<JsonValue>();
    GraphBuilder build(name ? label(*name) : "");
    std::vector<std::vector<ValueId>> inputs(nodes_.size());
    for (const Node& node : nodes_) build.value(node.name, node.bytes);
    for (const auto& [from, to] : links_) inputs[to].push_back(ValueId{from});

    bool past_the_loss = false;
    for (const std::uint32_t number : order) {
      const Node& node = nodes_[number];
      auto op = build.op(node.name);
      op.cost(node.cost).reads(inputs[number]).makes(ValueId{number});
      if (!node.backward) continue;
      if (!*node.backward) {
        op.phase(Phase::forward);
      } else {
        op.phase(std::exchange(past_the_loss, true) ? Phase::backward : Phase::loss);
      }
    }
    try {
      return build.done();
    } catch (const GraphError& error) {
      if (error.op) places_[order[error.op->index]].fail(error.what());
      if (error.value) places_[error.value->index].fail(error.what());
      root_.fail(error.what());
    }
  }

  JsonValue root_;
  std::vector<Node> nodes_;
  std::vector<JsonValue> places_;  // of the nodes
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<Digraph::Edge> links_;
};

void refuse_what_nodes_cannot_say(const Graph& graph) {
  const auto refuse = [](const std::string& name, std::string_view why) {
    throw InputError(fmt::format("node-link JSON can't say that {} {}", in_quotes(name), why));
  };
  bool past_the_loss = false;
  for (const OpId op : graph.ops()) {
    const std::string& name = graph.name(op);
    if (graph.outputs(op).size() != 1) {
      refuse(name, fmt::format("has {} outputs", graph.outputs(op).size()));
    }
    if (graph.workspace(op) != Bytes{0}) refuse(name, "has a workspace");
    if (!graph.recomputable(op)) refuse(name, "may not run again");
    const ValueId output = graph.outputs(op)[0];
    if (graph.overwritten(output)) refuse(name, "overwrites an input");
    if (graph.kept(output)) refuse(graph.name(output), "is kept");
    if (!graph.has_phases() || graph.phase(op) == Phase::forward) continue;
    const bool first = !std::exchange(past_the_loss, true);
    if (first != (graph.phase(op) == Phase::loss)) {
      refuse(name, fmt::format("has phase {}: the loss is one op, and the first after the forward",
                               to_string(graph.phase(op))));
    }
  }
}

}  // namespace

Graph read_node_link(const JsonDocument& document) { return Reader(document.root()).read(); }

std::string write_node_link(const Graph& graph) {
  refuse_what_nodes_cannot_say(graph);
  std::string out = "{\"directed\": true, \"multigraph\": false, \"graph\": {\"name\": ";
  append_json_string(out, graph.name());
  out += "},\n\"nodes\": [";
  const auto write = std::back_inserter(out);
  for (const OpId op : graph.ops()) {
    out += op.index == 0 ? "\n {\"name\": " : ",\n {\"name\": ";
    append_json_string(out, graph.name(op));
    if (graph.has_phases()) {
      fmt::format_to(write, ", \"backward\": {}", graph.phase(op) != Phase::forward);
    }
    fmt::format_to(write, ", \"cost_cpu\": {}, \"cost_ram\": {}, \"id\": {}}}",
                   graph.cost(op).count(), graph.bytes(graph.outputs(op)[0]).count(), op.index);
  }
  out += "],\n\"links\": [";
  bool first = true;
  for (const OpId op : graph.ops()) {
    for (const ValueId input : graph.inputs(op)) {
      const auto producer = graph.producer(input);
      if (!producer) continue;
      fmt::format_to(write, "{}{{\"source\": {}, \"target\": {}}}",
                     std::exchange(first, false) ? "\n " : ",\n ", producer->index, op.index);
    }
  }
  out += "]}\n";
  return out;
}

}  // namespace reprise
