// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/graph.h"

#include <fmt/core.h>

#include "reprise/core/topology.h"

namespace reprise {
namespace {

// FNV-1a, 64 bits. Strings are prefixed by their length, so that no two sequences run together.
class Fingerprint {
 public:
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      add_byte(static_cast<std::uint8_t>(number >> shift));
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add_byte(static_cast<std::uint8_t>(c));
  }
  void add(Bytes bytes) { add(static_cast<std::uint64_t>(bytes.count())); }
  std::string hex() const { return fmt::format("{:016x}", hash_); }

 private:
  void add_byte(std::uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

template <class Ids, class Name, class Fail>
void check_names_of(Ids ids, Name name, Fail fail) {
  NameTable seen;
  seen.reserve(ids.size());
  for (const auto id : ids) {
    const std::string& text = name(id);
    if (text.empty()) fail(id, "the name is empty");
    if (has_control_character(text)) {
      fail(id, fmt::format("the name {} has a control character", in_quotes(text)));
    }
    if (!is_utf8(text)) fail(id, fmt::format("the name {} is not UTF-8", in_quotes(text)));
    if (!seen.add(text)) fail(id, fmt::format("the name {} is taken", in_quotes(text)));
  }
}

}  // namespace

std::string Graph::fingerprint() const {
  Fingerprint hash;
  hash.add(values().size());
  for (const ValueId value : values()) {
    hash.add(name(value));
    hash.add(bytes(value));
    hash.add(std::uint64_t{resident(value)});
    hash.add(std::uint64_t{overwritten_[value]});
  }
  hash.add(ops().size());
  for (const OpId op : ops()) {
    hash.add(name(op));
    hash.add(workspace(op));
    for (const auto list : {inputs(op), outputs(op)}) {
      hash.add(list.size());
      for (const ValueId value : list) hash.add(std::uint64_t{value.index});
    }
  }
  return hash.hex();
}

Graph Graph::pinned(std::span<const ValueId> keep, std::span<const OpId> never_again) const {
  Graph graph = *this;
  for (const ValueId value : keep) graph.kept_[value] = true;
  for (const OpId op : never_again) graph.recomputable_[op] = false;
  return graph;
}

GraphBuilder::GraphBuilder(std::string name, CostUnit unit) {
  graph_.name_ = std::move(name);
  graph_.cost_unit_ = unit;
}

ValueId GraphBuilder::add_value(std::string name, Bytes bytes, bool resident) {
  const ValueId id{static_cast<std::uint32_t>(graph_.value_names_.size())};
  graph_.value_names_.push_back(std::move(name));
  graph_.bytes_.push_back(bytes);
  graph_.kept_.push_back(false);
  graph_.producers_.push_back(Graph::kNone);
  graph_.overwritten_.push_back(Graph::kNone);
  declared_resident_.push_back(resident);
  last_reader_.push_back(Graph::kNone);
  last_overwriter_.push_back(Graph::kNone);
  if (bytes < Bytes{0}) fail(id, fmt::format("{} bytes are fewer than none", bytes.count()));
  return id;
}

ValueId GraphBuilder::resident(std::string name, Bytes bytes) {
  return add_value(std::move(name), bytes, true);
}

ValueId GraphBuilder::value(std::string name, Bytes bytes) {
  return add_value(std::move(name), bytes, false);
}

void GraphBuilder::keep(ValueId value) { graph_.kept_[value] = true; }

GraphBuilder::Op GraphBuilder::op(std::string name) {
  const OpId id{static_cast<std::uint32_t>(graph_.op_names_.size())};
  graph_.op_names_.push_back(std::move(name));
  graph_.kinds_.push_back({});
  graph_.costs_.push_back(Cost{0});
  graph_.workspaces_.push_back(Bytes{0});
  graph_.recomputable_.push_back(true);
  graph_.gradient_of_.push_back(std::nullopt);
  graph_.input_ends_.push_back(static_cast<std::uint32_t>(graph_.inputs_.size()));
  graph_.output_ends_.push_back(static_cast<std::uint32_t>(graph_.outputs_.size()));
  phases_.push_back(std::nullopt);
  return {*this, id};
}

GraphBuilder::Op& GraphBuilder::Op::cost(Cost cost) {
  if (cost < Cost{0}) builder_.fail(id_, fmt::format("the cost {} is below zero", cost.count()));
  builder_.graph_.costs_[id_] = cost;
  return *this;
}

GraphBuilder::Op& GraphBuilder::Op::workspace(Bytes bytes) {
  if (bytes < Bytes{0}) {
    builder_.fail(id_, fmt::format("a workspace of {} bytes is below zero", bytes.count()));
  }
  builder_.graph_.workspaces_[id_] = bytes;
  return *this;
}

GraphBuilder::Op& GraphBuilder::Op::phase(Phase phase) {
  builder_.phases_[id_] = phase;
  return *this;
}

GraphBuilder::Op& GraphBuilder::Op::kind(std::string words) {
  if (has_control_character(words)) builder_.fail(id_, "the kind has a control character");
  if (!is_utf8(words)) builder_.fail(id_, "the kind is not UTF-8");
  builder_.graph_.kinds_[id_] = std::move(words);
  return *this;
}

GraphBuilder::Op& GraphBuilder::Op::gradient_of(OpId op) {
  if (op >= id_) builder_.fail(id_, "the op whose gradient this is has to stand before it");
  builder_.graph_.gradient_of_[id_] = op;
  return *this;
}

GraphBuilder::Op& GraphBuilder::Op::never_again() {
  builder_.graph_.recomputable_[id_] = false;
  return *this;
}

void GraphBuilder::Op::want_last() const {
  if (id_.index + 1 == builder_.graph_.op_names_.size()) return;
  throw std::logic_error("only the last op can be added to");
}

GraphBuilder::Op& GraphBuilder::Op::reads(std::span<const ValueId> values) {
  want_last();
  Graph& graph = builder_.graph_;
  for (const ValueId value : values) {
    if (builder_.last_reader_[value] == id_.index) continue;
    builder_.last_reader_[value] = id_.index;
    graph.inputs_.push_back(value);
    ++graph.input_ends_[id_.index];
  }
  return *this;
}

GraphBuilder::Op& GraphBuilder::Op::makes(ValueId declared) {
  want_last();
  Graph& graph = builder_.graph_;
  if (builder_.declared_resident_[declared]) {
    builder_.fail(id_, fmt::format("makes {}, which is resident", in_quotes(graph.name(declared))));
  }
  if (const auto other = graph.producer(declared)) {
    builder_.fail(id_,
                  fmt::format("makes {}, which {} makes already", in_quotes(graph.name(declared)),
                              *other == id_ ? "it" : in_quotes(graph.name(*other))));
  }
  graph.producers_[declared] = id_.index;
  graph.outputs_.push_back(declared);
  ++graph.output_ends_[id_.index];
  return *this;
}

GraphBuilder::Made GraphBuilder::Op::makes(std::string name, Bytes bytes) {
  const ValueId value = builder_.value(std::move(name), bytes);
  makes(value);
  return {*this, builder_, value};
}

GraphBuilder::Op& GraphBuilder::Op::overwrites(ValueId output, ValueId input) {
  Graph& graph = builder_.graph_;
  const auto refuse = [&](std::string_view why) {
    builder_.fail(id_, fmt::format("{} can't overwrite {}: {}", in_quotes(graph.name(output)),
                                   in_quotes(graph.name(input)), why));
  };
  if (graph.producers_[output] != id_.index) refuse("the first is not an output of the op");
  if (builder_.last_reader_[input] != id_.index) refuse("the second is not an input of the op");
  if (builder_.declared_resident_[input]) refuse("the second is resident");
  if (graph.bytes(output) != graph.bytes(input)) {
    refuse(fmt::format("they have {} B and {} B", graph.bytes(output).count(),
                       graph.bytes(input).count()));
  }
  if (builder_.last_overwriter_[input] == id_.index) refuse("another output does so already");
  if (graph.overwritten(output)) refuse("it overwrites another input already");
  builder_.last_overwriter_[input] = id_.index;
  graph.overwritten_[output] = input.index;
  return *this;
}

GraphBuilder::Made& GraphBuilder::Made::over(ValueId input) {
  op_.overwrites(id_, input);
  return *this;
}

GraphBuilder::Made& GraphBuilder::Made::kept() {
  builder_.keep(id_);
  return *this;
}

void GraphBuilder::fail(OpId op, const std::string& what) const {
  throw GraphError(fmt::format("op {}: {}", in_quotes(graph_.name(op)), what), op, std::nullopt);
}

void GraphBuilder::fail(ValueId value, const std::string& what) const {
  throw GraphError(fmt::format("value {}: {}", in_quotes(graph_.name(value)), what), std::nullopt,
                   value);
}

void GraphBuilder::check_names() const {
  if (has_control_character(graph_.name_)) {
    throw GraphError("the graph's name has a control character", std::nullopt, std::nullopt);
  }
  if (!is_utf8(graph_.name_)) {
    throw GraphError("the graph's name is not UTF-8", std::nullopt, std::nullopt);
  }
  const auto refuse = [this](auto id, const std::string& what) { fail(id, what); };
  const auto name = [this](auto id) -> const std::string& { return graph_.name(id); };
  check_names_of(graph_.ops(), name, refuse);
  check_names_of(graph_.values(), name, refuse);
}

void GraphBuilder::check_producers() const {
  for (const ValueId value : graph_.values()) {
    if (!declared_resident_[value] && graph_.resident(value)) {
      fail(value, "no op makes it and it is not resident");
    }
  }
}

// Program order has to be topological; where it can't be made so, a cycle is to blame.
void GraphBuilder::check_order() const {
  for (const OpId op : graph_.ops()) {
    for (const ValueId input : graph_.inputs(op)) {
      const auto producer = graph_.producer(input);
      if (!producer || *producer < op) continue;

      std::vector<Digraph::Edge> edges;
      for (const OpId reader : graph_.ops()) {
        for (const ValueId value : graph_.inputs(reader)) {
          if (const auto from = graph_.producer(value))
            edges.push_back({from->index, reader.index});
        }
      }
      const auto cycle = find_cycle(Digraph(graph_.ops().size(), edges));
      if (!cycle.empty()) {
        fail(OpId{cycle.front()}, "is in a cycle: " + cycle_text(cycle, [this](std::uint32_t node) {
                                    return graph_.name(OpId{node});
                                  }));
      }
      fail(op, fmt::format("reads {} before {} makes it: ops stand in the order they run",
                           in_quotes(graph_.name(input)), in_quotes(graph_.name(*producer))));
    }
  }
}

void GraphBuilder::settle_phases() {
  for (const OpId op : graph_.ops()) {
    if (phases_[op].has_value() == phases_[OpId{0}].has_value()) continue;
    const OpId without = phases_[op] ? OpId{0} : op;
    fail(without, "has no phase though others have one: either every op has a phase or none");
  }
  if (phases_.empty() || !phases_[OpId{0}]) return;
  for (const OpId op : graph_.ops()) graph_.phases_.push_back(*phases_[op]);
}

// Whatever can be there at once, second buffers included, then adds up in 64 bits, in any order.
void GraphBuilder::settle_totals() {
  Bytes most;
  for (const ValueId value : graph_.values()) {
    try {
      most += graph_.bytes(value);
      if (!graph_.resident(value)) most += graph_.bytes(value);
    } catch (const OverflowError& error) {
      fail(value, fmt::format("{} by here, each value that is made counted twice", error.what()));
    }
    if (graph_.resident(value)) graph_.resident_bytes_ += graph_.bytes(value);
  }
  for (const OpId op : graph_.ops()) {
    try {
      most += graph_.workspace(op);
      graph_.base_cost_ += graph_.cost(op);
    } catch (const OverflowError& error) {
      fail(op, fmt::format("{} by here", error.what()));
    }
  }
}

void GraphBuilder::index_consumers() {
  std::vector<std::uint32_t>& ends = graph_.consumer_ends_;
  ends.assign(graph_.values().size(), 0);
  for (const ValueId value : graph_.inputs_) ++ends[value.index];
  std::uint32_t total = 0;
  for (std::uint32_t& end : ends) {
    const std::uint32_t count = end;
    end = total;
    total += count;
  }
  graph_.consumers_.resize(total);
  for (const OpId op : graph_.ops()) {
    for (const ValueId value : graph_.inputs(op)) graph_.consumers_[ends[value.index]++] = op;
  }
}

Graph GraphBuilder::done() {
  check_names();
  check_producers();
  check_order();
  settle_phases();
  settle_totals();
  index_consumers();
  return std::move(graph_);
}

NameIndex::NameIndex(const Graph& graph) {
  ops_.reserve(graph.ops().size());
  for (const OpId op : graph.ops()) ops_.add(graph.name(op));
  values_.reserve(graph.values().size());
  for (const ValueId value : graph.values()) values_.add(graph.name(value));
}

std::optional<OpId> NameIndex::op(std::string_view name) const {
  const auto found = ops_.find(name);
  return found ? std::optional(OpId{*found}) : std::nullopt;
}

std::optional<ValueId> NameIndex::value(std::string_view name) const {
  const auto found = values_.find(name);
  return found ? std::optional(ValueId{*found}) : std::nullopt;
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::loss: return "loss";
    case Phase::backward: return "backward";
  }
  return "";
}

std::string_view to_string(CostUnit unit) {
  switch (unit) {
    case CostUnit::units: return "units";
    case CostUnit::ns: return "ns";
    case CostUnit::flops: return "flops";
  }
  return "";
}

}  // namespace reprise
