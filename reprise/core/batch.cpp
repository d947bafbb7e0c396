// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/batch.h"

#include <fmt/core.h>

namespace reprise {
namespace {

void add_values(const Graph& graph, std::int64_t batch, GraphBuilder& build) {
  for (const ValueId value : graph.values()) {
    if (graph.resident(value)) {
      build.resident(graph.name(value), graph.bytes(value));
    } else {
      build.value(graph.name(value),
                  graph.bytes(value) * (grows_with_batch(graph, value) ? batch : 1));
    }
    if (graph.kept(value)) build.keep(value);
  }
}

void add_ops(const Graph& graph, std::int64_t batch, GraphBuilder& build) {
  for (const OpId op : graph.ops()) {
    auto copy = build.op(graph.name(op));
    copy.cost(graph.cost(op) * batch).workspace(graph.workspace(op) * batch);
    copy.kind(graph.kind(op)).reads(graph.inputs(op));
    if (graph.has_phases()) copy.phase(graph.phase(op));
    if (const auto forward = graph.gradient_of(op)) copy.gradient_of(*forward);
    if (!graph.recomputable(op)) copy.never_again();
    for (const ValueId output : graph.outputs(op)) {
      copy.makes(output);
      const auto input = graph.overwritten(output);
      if (input && grows_with_batch(graph, output) == grows_with_batch(graph, *input)) {
        copy.overwrites(output, *input);
      }
    }
  }
}

}  // namespace

bool grows_with_batch(const Graph& graph, ValueId value) {
  return !graph.resident(value) && !graph.kept(value);
}

Graph at_batch(const Graph& graph, std::int64_t batch) try {
  GraphBuilder build(graph.name(), graph.cost_unit());
  add_values(graph, batch, build);
  add_ops(graph, batch, build);
  return build.done();
} catch (const InputError& error) {  // only amounts can go wrong: the graph is right at batch 1
  throw OverflowError(fmt::format("at batch {}: {}", batch, error.what()));
}

}  // namespace reprise
