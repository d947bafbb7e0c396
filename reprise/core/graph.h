// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/core/error.h"
#include "reprise/core/ids.h"
#include "reprise/core/name_table.h"
#include "reprise/core/units.h"

namespace reprise {

enum class Phase : std::uint8_t { forward, loss, backward };
enum class CostUnit : std::uint8_t { units, ns, flops };

// A DAG of ops that produce values, valid by construction: see GraphBuilder. Immutable.
//
// Ops stand in program order, which is topological. A value without a producer is resident: always
// there, never freed, in no peak.
class Graph {
 public:
  const std::string& name() const { return name_; }
  CostUnit cost_unit() const { return cost_unit_; }
  bool has_phases() const { return !phases_.empty(); }  // every op has one, or none has

  IdRange<OpId> ops() const { return IdRange<OpId>(op_names_.size()); }
  IdRange<ValueId> values() const { return IdRange<ValueId>(value_names_.size()); }

  const std::string& name(OpId op) const { return op_names_[op]; }
  const std::string& kind(OpId op) const { return kinds_[op]; }  // words for people, or empty
  Cost cost(OpId op) const { return costs_[op]; }
  Bytes workspace(OpId op) const { return workspaces_[op]; }      // needed only while it runs
  Phase phase(OpId op) const { return phases_[op]; }              // only where has_phases()
  bool recomputable(OpId op) const { return recomputable_[op]; }  // may it run twice?
  std::optional<OpId> gradient_of(OpId op) const { return gradient_of_[op]; }
  std::span<const ValueId> inputs(OpId op) const { return row(inputs_, input_ends_, op.index); }
  std::span<const ValueId> outputs(OpId op) const { return row(outputs_, output_ends_, op.index); }

  const std::string& name(ValueId value) const { return value_names_[value]; }
  Bytes bytes(ValueId value) const { return bytes_[value]; }
  bool kept(ValueId value) const { return kept_[value]; }  // has to be there at the end
  bool resident(ValueId value) const { return producers_[value] == kNone; }
  std::optional<OpId> producer(ValueId value) const {
    return resident(value) ? std::nullopt : std::optional(OpId{producers_[value]});
  }
  // The input of its producer whose buffer `value` may take over.
  std::optional<ValueId> overwritten(ValueId value) const {
    return overwritten_[value] == kNone ? std::nullopt
                                        : std::optional(ValueId{overwritten_[value]});
  }
  // Ops that read `value`, each once, in program order.
  std::span<const OpId> consumers(ValueId value) const {
    return row(consumers_, consumer_ends_, value.index);
  }

  Bytes resident_bytes() const { return resident_bytes_; }
  Cost base_cost() const { return base_cost_; }  // every op once

  // A hash of what a plan refers to and what its peak depends on: names, edges, bytes, workspace
  // and overwriting; 16 hex digits. Costs, phases, kinds, the graph's name, and which values are
  // kept or ops may run again are left out: `check` judges those.
  std::string fingerprint() const;

  // This graph with more asked of its plans: `keep` is there at the end as well, `never_again`
  // runs once only.
  Graph pinned(std::span<const ValueId> keep, std::span<const OpId> never_again) const;

 private:
  friend class GraphBuilder;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  template <class T>
  static std::span<const T> row(const std::vector<T>& cells, const std::vector<std::uint32_t>& ends,
                                std::uint32_t index) {
    const std::uint32_t begin = index == 0 ? 0 : ends[index - 1];
    return {cells.data() + begin, ends[index] - begin};
  }

  std::string name_;
  CostUnit cost_unit_ = CostUnit::units;

  IdVector<OpId, std::string> op_names_;
  IdVector<OpId, std::string> kinds_;
  IdVector<OpId, Cost> costs_;
  IdVector<OpId, Bytes> workspaces_;
  IdVector<OpId, Phase> phases_;
  IdVector<OpId, bool> recomputable_;
  IdVector<OpId, std::optional<OpId>> gradient_of_;
  std::vector<ValueId> inputs_;
  std::vector<std::uint32_t> input_ends_;
  std::vector<ValueId> outputs_;
  std::vector<std::uint32_t> output_ends_;

  IdVector<ValueId, std::string> value_names_;
  IdVector<ValueId, Bytes> bytes_;
  IdVector<ValueId, bool> kept_;
  IdVector<ValueId, std::uint32_t> producers_;
  IdVector<ValueId, std::uint32_t> overwritten_;
  std::vector<OpId> consumers_;
  std::vector<std::uint32_t> consumer_ends_;

  Bytes resident_bytes_;
  Cost base_cost_;
};

// A rule of the model that a graph under construction breaks, and the op or value it is about.
class GraphError : public InputError {
 public:
  GraphError(const std::string& what, std::optional<OpId> about_op,
             std::optional<ValueId> about_value)
      : InputError(what), op(about_op), value(about_value) {}

  std::optional<OpId> op;
  std::optional<ValueId> value;
};

// Builds a Graph op by op, in program order, and refuses what the model has no place for: empty,
// repeated or unprintable names, negative amounts, two producers, an op that reads what is made
// later (or never), a cycle, overwriting that can't be, phases on some ops only, totals past 64
// bits. Everything throws GraphError.
//
//   GraphBuilder build("tiny");
//   auto x = build.resident("x", Bytes{4096});
//   auto h = build.op("conv").cost(Cost{120}).reads({x}).makes("h", Bytes{8192});
//   build.op("relu").cost(Cost{10}).reads({h}).makes("y", Bytes{8192}).over(h).kept();
//   Graph graph = build.done();
class GraphBuilder {
 public:
  class Op;
  class Made;

  explicit GraphBuilder(std::string name, CostUnit unit = CostUnit::units);

  ValueId resident(std::string name, Bytes bytes);
  // Declares a value that an op will make: for readers, whose values come before their producers.
  ValueId value(std::string name, Bytes bytes);
  void keep(ValueId value);
  Op op(std::string name);  // the last op is the one that can still be added to

  Graph done();

 private:
  ValueId add_value(std::string name, Bytes bytes, bool resident);
  void check_names() const;
  void check_producers() const;
  void check_order() const;
  void settle_phases();
  void settle_totals();
  void index_consumers();
  [[noreturn]] void fail(OpId op, const std::string& what) const;
  [[noreturn]] void fail(ValueId value, const std::string& what) const;

  Graph graph_;
  IdVector<ValueId, bool> declared_resident_;
  IdVector<ValueId, std::uint32_t> last_reader_;      // the last op said to read the value
  IdVector<ValueId, std::uint32_t> last_overwriter_;  // the last op said to overwrite it
  IdVector<OpId, std::optional<Phase>> phases_;
};

// The op under construction.
class GraphBuilder::Op {
 public:
  Op& cost(Cost cost);
  Op& workspace(Bytes bytes);
  Op& phase(Phase phase);
  Op& kind(std::string words);
  Op& gradient_of(OpId op);
  Op& never_again();
  Op& reads(std::span<const ValueId> values);  // a value named twice counts once
  Op& reads(std::initializer_list<ValueId> values) {
    return reads(std::span(values.begin(), values.size()));
  }
  Op& makes(ValueId declared);
  Made makes(std::string name, Bytes bytes);
  Op& overwrites(ValueId output, ValueId input);
  OpId id() const { return id_; }

 private:
  friend class GraphBuilder;
  void want_last() const;
  Op(GraphBuilder& builder, OpId id) : builder_(builder), id_(id) {}

  GraphBuilder& builder_;
  OpId id_;
};

// The value that an op was just said to make.
class GraphBuilder::Made {
 public:
  Made& over(ValueId input);
  Made& kept();
  ValueId id() const { return id_; }
  operator ValueId() const { return id_; }  // NOLINT(google-explicit-constructor)

 private:
  friend class GraphBuilder::Op;
  Made(Op op, GraphBuilder& builder, ValueId id) : op_(op), builder_(builder), id_(id) {}

  Op op_;
  GraphBuilder& builder_;
  ValueId id_;
};

// Finds ops and values by name. Borrows the graph.
class NameIndex {
 public:
  explicit NameIndex(const Graph& graph);
  std::optional<OpId> op(std::string_view name) const;
  std::optional<ValueId> value(std::string_view name) const;

 private:
  NameTable ops_;  // positions are ids
  NameTable values_;
};

std::string_view to_string(Phase phase);
std::string_view to_string(CostUnit unit);

}  // namespace reprise
