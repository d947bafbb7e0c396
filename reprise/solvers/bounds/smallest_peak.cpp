// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/smallest_peak.h"

namespace reprise {

Bytes bytes_alone(const Graph& graph, OpId op) {
  Bytes sum = graph.workspace(op);
  for (const ValueId input : graph.inputs(op)) {
    if (!graph.resident(input)) sum += graph.bytes(input);
  }
  for (const ValueId output : graph.outputs(op)) {
    if (!graph.overwritten(output)) sum += graph.bytes(output);
  }
  return sum;
}

ValueSet own_values(const Graph& graph, OpId op) {
  ValueSet own(graph.values().size(), false);
  for (const ValueId input : graph.inputs(op)) own[input] = true;
  for (const ValueId output : graph.outputs(op)) {
    own[output] = true;
    if (const auto input = graph.overwritten(output)) own[*input] = false;
  }
  return own;
}

PeakBound smallest_peak_bound(const Graph& graph) {
  PeakBound bound;
  for (const OpId op : graph.ops()) {
    const Bytes bytes = bytes_alone(graph, op);
    if (bound.op && bytes <= bound.bytes) continue;
    bound = {bytes, op, Bytes{0}};
  }
  Bytes kept;
  for (const ValueId value : graph.values()) {
    if (graph.kept(value) && !graph.resident(value)) kept += graph.bytes(value);
  }
  if (kept > bound.bytes) bound = {kept, std::nullopt, Bytes{0}};
  return bound;
}

}  // namespace reprise
