// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/light_order.h"

#include <cstdint>
#include <set>
#include <utility>

namespace reprise {

std::vector<OpId> light_order(const Graph& graph) {
  IdVector<OpId, std::uint32_t> missing(graph.ops().size(), 0);        // inputs not made yet
  IdVector<ValueId, std::uint32_t> readers(graph.values().size(), 0);  // that have not run
  for (const ValueId value : graph.values()) {
    if (graph.resident(value)) continue;
    readers[value] = static_cast<std::uint32_t>(graph.consumers(value).size());
    for (const OpId op : graph.consumers(value)) ++missing[op];
  }
  const auto adds = [&](OpId op) {
    std::int64_t bytes = 0;
    for (const ValueId output : graph.outputs(op)) {
      const bool stays = !graph.consumers(output).empty() || graph.kept(output);
      if (stays) bytes += graph.bytes(output).count();
    }
    for (const ValueId input : graph.inputs(op)) {
      const bool goes = readers[input] == 1 && !graph.resident(input) && !graph.kept(input);
      if (goes) bytes -= graph.bytes(input).count();
    }
    return bytes;
  };
  std::set<std::pair<std::int64_t, OpId>> ready;
  IdVector<OpId, std::int64_t> added(graph.ops().size(), 0);
  const auto enter = [&](OpId op) {
    added[op] = adds(op);
    ready.emplace(added[op], op);
  };
  for (const OpId op : graph.ops()) {
    if (missing[op] == 0) enter(op);
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    const OpId op = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(op);
    for (const ValueId input : graph.inputs(op)) {
      if (graph.resident(input) || --readers[input] != 1) continue;
      for (const OpId other : graph.consumers(input)) {
        if (ready.erase({added[other], other}) > 0) enter(other);
      }
    }
    for (const ValueId output : graph.outputs(op)) {
      for (const OpId reader : graph.consumers(output)) {
        if (--missing[reader] == 0) enter(reader);
      }
    }
  }
  return order;
}

}  // namespace reprise
