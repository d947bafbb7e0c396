// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"

namespace reprise {
namespace {

constexpr std::size_t kSharedReaders = 8;  // forward ops that read what belongs to no block …
constexpr std::size_t kSharedSpan = 4;     // … over one part of so many of the forward pass

constexpr std::uint32_t kNone = UINT32_MAX;

// The ops up to the loss; where no op has a phase, those before the plain run's peak.
std::vector<OpId> forward_ops(const Graph& graph) {
  std::vector<OpId> forward;
  if (graph.has_phases()) {
    for (const OpId op : graph.ops()) {
      if (graph.phase(op) == Phase::forward) forward.push_back(op);
    }
    return forward;
  }
  const Plan plain = base_run(graph);
  const std::size_t peak = simulate(graph, plain).peak_step.value_or(0);
  for (std::size_t i = 0; i < peak; ++i) {
    if (plain.steps[i].kind() == StepKind::compute) forward.push_back(plain.steps[i].op());
  }
  return forward;
}

// Finds out which block each op belongs to.
class Partition {
 public:
  Partition(const Graph& graph, BlockSize size)
      : graph_(graph),
        size_(size),
        forward_(forward_ops(graph)),
        place_(graph.ops().size(), kNone),
        last_reader_(graph.ops().size(), 0),
        block_(graph.ops().size(), kNone) {
    for (std::uint32_t i = 0; i < forward_.size(); ++i) place_[forward_[i]] = i;
    find_readers();
    number_forward();
  }

  std::vector<Block> blocks() {
    if (count_ < 2 || !forward_stands_alone()) return {};
    number_backward();
    std::vector<Block> blocks(count_);
    for (const OpId op : graph_.ops()) {
      Block& block = blocks[block_[op]];
      (is_forward(op) ? block.forward : block.backward).push_back(op);
    }
    return blocks;
  }

 private:
  bool is_forward(OpId op) const { return place_[op] != kNone; }

  // The last forward op that reads what an op makes; itself, where none does or it is shared.
  void find_readers() {
    for (std::uint32_t i = 0; i < forward_.size(); ++i) {
      std::uint32_t last = i;
      std::size_t readers = 0;
      for (const ValueId output : graph_.outputs(forward_[i])) {
        for (const OpId reader : graph_.consumers(output)) {
          if (!is_forward(reader)) continue;
          ++readers;
          last = std::max(last, place_[reader]);
        }
      }
      const bool shared = readers >= kSharedReaders && kSharedSpan * (last - i) > forward_.size();
      last_reader_[forward_[i]] = shared ? i : last;
    }
  }

  // An op ends a block where nothing but its own outputs is read across it, and the backward pass
  // reads them as well: it costs least to keep them.
  void number_forward() {
    std::vector<std::uint32_t> ends;
    std::uint32_t read_until = 0;  // of all ops before
    std::uint32_t from = 0;        // where the block begins
    for (std::uint32_t i = 0; i + 1 < forward_.size(); ++i) {
      const std::uint32_t last = last_reader_[forward_[i]];
      const bool parts = read_until <= i && last > i && is_read_later(forward_[i]);
      if (parts && i + 1 - from >= size_.least_ops) {
        ends.push_back(i);
        from = i + 1;
      }
      read_until = std::max(read_until, last);
    }
    const std::size_t together = (ends.size() + size_.most_blocks) / size_.most_blocks;
    std::size_t next = together - 1;  // of the ends, that neighbours taken together have
    for (std::uint32_t i = 0; i < forward_.size(); ++i) {
      block_[forward_[i]] = count_;
      if (next >= ends.size() || i != ends[next]) continue;
      next += together;
      ++count_;
    }
    ++count_;
  }

  bool is_read_later(OpId op) const {
    for (const ValueId output : graph_.outputs(op)) {
      const auto readers = graph_.consumers(output);
      if (!readers.empty() && !is_forward(readers.back())) return true;
    }
    return false;
  }

  bool forward_stands_alone() const {
    for (const OpId op : forward_) {
      for (const ValueId input : graph_.inputs(op)) {
        if (!graph_.resident(input) && !is_forward(*graph_.producer(input))) return false;
      }
    }
    return true;
  }

  // As late as can be after the loss, so as early as can be in the chain: what an op reads has to
  // be there. What a block hands on is the next block's as well.
  void number_backward() {
    for (const OpId op : graph_.ops()) {
      if (is_forward(op)) continue;
      std::uint32_t block = count_ - 1;
      for (const ValueId input : graph_.inputs(op)) {
        if (graph_.resident(input)) continue;
        const OpId producer = *graph_.producer(input);
        std::uint32_t of_input = block_[producer];
        if (is_forward(producer) && leaves_its_block(producer)) {
          of_input = is_shared(producer) ? block : of_input + 1;
        }
        block = std::min(block, of_input);
      }
      block_[op] = block;
    }
  }

  bool is_shared(OpId op) const { return last_reader_[op] == place_[op]; }

  bool leaves_its_block(OpId op) const {
    for (const ValueId output : graph_.outputs(op)) {
      for (const OpId reader : graph_.consumers(output)) {
        if (is_forward(reader) && block_[reader] != block_[op]) return true;
      }
    }
    return false;
  }

  const Graph& graph_;
  BlockSize size_;
  std::vector<OpId> forward_;
  IdVector<OpId, std::uint32_t> place_;        // in the forward pass
  IdVector<OpId, std::uint32_t> last_reader_;  // its place
  IdVector<OpId, std::uint32_t> block_;
  std::uint32_t count_ = 0;
};

// Gives the values of a block names of its own, in the order in which they are met.
class BlockBuilder {
 public:
  BlockBuilder(const Graph& graph, const Block& block)
      : graph_(graph), block_(block), role_(graph.ops().size(), Role::elsewhere) {
    for (const OpId op : block.forward) role_[op] = Role::forward;
    for (const OpId op : block.backward) role_[op] = Role::backward;
  }

  Graph build(Bytes workspace) {
    for (const OpId op : block_.forward) add(op);
    auto between = build_.op("between");
    between.workspace(workspace).never_again().reads(read_between()).makes("0", Bytes{0});
    for (const ValueId value : handed_back()) between.makes(local(value));
    for (const OpId op : block_.backward) add(op);
    return build_.done();
  }

 private:
  enum class Role : std::uint8_t { elsewhere, forward, backward };

  bool is_made_here(ValueId value) const {
    return !graph_.resident(value) && role_[*graph_.producer(value)] != Role::elsewhere;
  }

  bool comes_from_before(ValueId value) const {
    if (graph_.resident(value)) return true;
    const OpId producer = *graph_.producer(value);
    const bool is_forward = !graph_.has_phases() || graph_.phase(producer) == Phase::forward;
    return role_[producer] == Role::elsewhere && is_forward && producer < block_.forward.front();
  }

  // The value's number in the block.
  ValueId local(ValueId value) {
    const auto known = numbers_.find(value);
    if (known != numbers_.end()) return known->second;
    std::string name = std::to_string(numbers_.size() + 1);
    const Bytes bytes = graph_.bytes(value);
    const ValueId number = comes_from_before(value) ? build_.resident(std::move(name), bytes)
                                                    : build_.value(std::move(name), bytes);
    if (stays(value)) build_.keep(number);
    numbers_.emplace(value, number);
    return number;
  }

  // Is it there when the block is done?
  bool stays(ValueId value) const {
    if (!is_made_here(value)) return false;
    if (graph_.kept(value)) return true;
    return role_[*graph_.producer(value)] == Role::backward && is_read_elsewhere(value);
  }

  bool is_read_elsewhere(ValueId value) const {
    const auto readers = graph_.consumers(value);
    return std::any_of(readers.begin(), readers.end(),
                       [&](OpId op) { return role_[op] == Role::elsewhere; });
  }

  void add(OpId op) {
    std::vector<ValueId> inputs;
    for (const ValueId input : graph_.inputs(op)) inputs.push_back(local(input));
    auto added = build_.op(std::to_string(op.index));
    added.cost(graph_.cost(op)).workspace(graph_.workspace(op)).reads(inputs);
    if (!graph_.recomputable(op)) added.never_again();
    for (const ValueId output : graph_.outputs(op)) {
      added.makes(local(output));
      const auto over = graph_.overwritten(output);
      if (over && !comes_from_before(*over)) added.overwrites(local(output), local(*over));
    }
  }

  std::vector<ValueId> read_between() {
    std::vector<ValueId> read;
    for (const OpId op : block_.forward) {
      for (const ValueId output : graph_.outputs(op)) {
        if (is_read_elsewhere(output)) read.push_back(local(output));
      }
    }
    return read;
  }

  std::vector<ValueId> handed_back() const {
    std::vector<ValueId> values;
    for (const OpId op : block_.backward) {
      for (const ValueId input : graph_.inputs(op)) {
        if (!is_made_here(input) && !comes_from_before(input)) values.push_back(input);
      }
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  const Graph& graph_;
  const Block& block_;
  IdVector<OpId, Role> role_;
  GraphBuilder build_{"block"};
  std::map<ValueId, ValueId> numbers_;
};

// All that plans of the graph depend on, as numbers.
std::vector<std::int64_t> description(const Graph& graph) {
  std::vector<std::int64_t> words;
  for (const ValueId value : graph.values()) {
    words.push_back(graph.resident(value) ? -1 : graph.bytes(value).count());
    words.push_back(graph.kept(value) ? 1 : 0);
    const auto over = graph.overwritten(value);
    words.push_back(over ? over->index : -1);
  }
  for (const OpId op : graph.ops()) {
    words.push_back(graph.cost(op).count());
    words.push_back(graph.workspace(op).count());
    words.push_back(graph.recomputable(op) ? 1 : 0);
    for (const ValueId input : graph.inputs(op)) words.push_back(input.index);
    words.push_back(-1);
    for (const ValueId output : graph.outputs(op)) words.push_back(output.index);
    words.push_back(-1);
  }
  return words;
}

}  // namespace

std::vector<Block> find_blocks(const Graph& graph, BlockSize size) {
  std::vector<Block> blocks = Partition(graph, size).blocks();
  std::map<std::vector<std::int64_t>, std::size_t> kinds;
  for (Block& block : blocks) {
    const auto words = description(block_graph(graph, block, Bytes{0}));
    block.kind = kinds.emplace(words, kinds.size()).first->second;
  }
  return blocks;
}

Graph block_graph(const Graph& graph, const Block& block, Bytes workspace) {
  return BlockBuilder(graph, block).build(workspace);
}

}  // namespace reprise
