// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/lifetimes.h"

#include <algorithm>
#include <vector>

namespace reprise {

// Walks the order backwards, since then it is known of each value whether it is read again before
// it is made again. The steps come out in reverse.
Plan with_earliest_frees(const Graph& graph, std::span<const OpId> order) {
  IdVector<ValueId, char> needed(graph.values().size(), 0);
  for (const ValueId value : graph.values()) {
    needed[value] = graph.kept(value) || graph.resident(value) ? 1 : 0;
  }
  Plan plan;
  plan.steps.reserve(order.size() * 2);
  for (std::size_t i = order.size(); i-- > 0;) {
    const OpId op = order[i];
    const auto inputs = graph.inputs(op);
    const auto outputs = graph.outputs(op);
    for (std::size_t k = outputs.size(); k-- > 0;) {
      if (needed[outputs[k]] == 0) plan.steps.push_back(Step::free(outputs[k]));
      needed[outputs[k]] = 0;
    }
    for (std::size_t k = inputs.size(); k-- > 0;) {
      if (needed[inputs[k]] == 0) plan.steps.push_back(Step::free(inputs[k]));
      needed[inputs[k]] = 1;
    }
    plan.steps.push_back(Step::compute(op));
  }
  std::reverse(plan.steps.begin(), plan.steps.end());
  return plan;
}

std::vector<OpId> program_order(const Graph& graph) {
  std::vector<OpId> order;
  order.reserve(graph.ops().size());
  for (const OpId op : graph.ops()) order.push_back(op);
  return order;
}

Plan base_run(const Graph& graph) { return with_earliest_frees(graph, program_order(graph)); }

}  // namespace reprise
