// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/plan.h"

#include <fmt/core.h>

namespace reprise {

std::string describe(const Graph& graph, const Violation& violation) {
  const auto op = [&] { return in_quotes(graph.name(violation.op)); };
  const auto value = [&] { return in_quotes(graph.name(violation.value)); };
  const std::string place = fmt::format("steps[{}]: ", violation.step);
  switch (violation.rule) {
    case Rule::known_op:
      return place + fmt::format("op {} is not in the graph, which has {}", violation.op.index,
                                 graph.ops().size());
    case Rule::known_value:
      return place + fmt::format("value {} is not in the graph, which has {}",
                                 violation.value.index, graph.values().size());
    case Rule::runs_once: return place + op() + " runs a second time, and may run once only";
    case Rule::inputs_there: return place + op() + " reads " + value() + ", which is not there";
    case Rule::frees_there: return place + "frees " + value() + ", which is not there";
    case Rule::frees_no_resident: return place + "frees " + value() + ", which is resident";
    case Rule::every_op_runs: return "at the end: " + op() + " never ran";
    case Rule::kept_there: return "at the end: " + value() + " is kept, and is not there";
  }
  return "";
}

}  // namespace reprise
