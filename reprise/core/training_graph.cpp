// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/training_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace reprise {
namespace {

void refuse_backward_ops(const Graph& graph) {
  if (!graph.has_phases()) return;
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::forward) continue;
    throw InputError(fmt::format("op {} has phase {}: a backward pass is added to forward ops only",
                                 in_quotes(graph.name(op)), to_string(graph.phase(op))));
  }
}

// Ids of the forward graph's ops and values are the same in the training graph.
void copy_forward(const Graph& graph, GraphBuilder& build) {
  for (const ValueId value : graph.values()) {
    if (graph.resident(value)) {
      build.resident(graph.name(value), graph.bytes(value));
    } else {
      build.value(graph.name(value), graph.bytes(value));
    }
    if (graph.kept(value)) build.keep(value);
  }
  for (const OpId op : graph.ops()) {
    auto copy = build.op(graph.name(op));
    copy.cost(graph.cost(op)).workspace(graph.workspace(op)).kind(graph.kind(op));
    copy.phase(Phase::forward).reads(graph.inputs(op));
    if (!graph.recomputable(op)) copy.never_again();
    for (const ValueId output : graph.outputs(op)) {
      copy.makes(output);
      if (const auto input = graph.overwritten(output)) copy.overwrites(output, *input);
    }
  }
}

// Does nothing come of `value`? Ops without outputs (a print, a counter) do not count.
bool unread(const Graph& graph, ValueId value) {
  const auto readers = graph.consumers(value);
  return std::all_of(readers.begin(), readers.end(),
                     [&](OpId reader) { return graph.outputs(reader).empty(); });
}

// The ops that read an output of `op`, in program order.
std::vector<OpId> readers_of(const Graph& graph, OpId op) {
  std::vector<OpId> readers;
  for (const ValueId output : graph.outputs(op)) {
    const auto consumers = graph.consumers(output);
    readers.insert(readers.end(), consumers.begin(), consumers.end());
  }
  std::sort(readers.begin(), readers.end());
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  return readers;
}

void append(std::vector<ValueId>& list, std::span<const ValueId> more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

Graph training_graph(const Graph& forward, const BackwardRules& rules) {
  refuse_backward_ops(forward);
  GraphBuilder build(forward.name(), forward.cost_unit());
  copy_forward(forward, build);

  std::vector<ValueId> results;
  for (const OpId op : forward.ops()) {
    for (const ValueId output : forward.outputs(op)) {
      if (unread(forward, output)) results.push_back(output);
    }
  }
  const ValueId loss =
      build.op("loss").phase(Phase::loss).reads(results).makes("loss", rules.loss_bytes);

  IdVector<OpId, std::vector<ValueId>> gradients(forward.ops().size());
  for (std::size_t i = forward.ops().size(); i-- > 0;) {
    const OpId op{static_cast<std::uint32_t>(i)};
    if (forward.outputs(op).empty()) continue;
    const std::vector<OpId> readers = readers_of(forward, op);

    std::vector<ValueId> reads;
    if (rules.reads.inputs) append(reads, forward.inputs(op));
    if (rules.reads.outputs) append(reads, forward.outputs(op));
    if (rules.reads.next_outputs) {
      for (const OpId reader : readers) append(reads, forward.outputs(reader));
    }
    bool feeds_loss = false;
    for (const ValueId output : forward.outputs(op)) {
      feeds_loss = feeds_loss || unread(forward, output);
    }
    if (feeds_loss) reads.push_back(loss);
    for (const OpId reader : readers) append(reads, gradients[reader]);

    auto backward = build.op(forward.name(op) + " backward");
    backward.phase(Phase::backward).gradient_of(op).workspace(forward.workspace(op));
    backward.cost(forward.cost(op) * rules.cost_factor).kind(forward.kind(op)).reads(reads);
    for (const ValueId output : forward.outputs(op)) {
      gradients[op].push_back(
          backward.makes(forward.name(output) + " gradient", forward.bytes(output)));
    }
  }
  return build.done();
}

}  // namespace reprise
