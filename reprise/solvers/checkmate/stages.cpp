// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/checkmate/stages.h"

#include <algorithm>
#include <numeric>

#include "reprise/core/lifetimes.h"

namespace reprise {

// Walks the stages backwards, so that of each value it is known whether it is needed from here on.
StageRuns fewest_runs(const Graph& graph, const StageKept& kept,
                      std::span<const std::size_t> first_stages) {
  const std::size_t ops = graph.ops().size();
  StageRuns runs(ops, ops, 0);
  ValueSet needed(graph.values().size(), false);
  for (const ValueId value : graph.values()) needed[value] = graph.kept(value);
  for (std::size_t stage = ops; stage-- > 0;) {
    for (std::size_t i = ops; i-- > 0;) {
      const OpId op{static_cast<std::uint32_t>(i)};
      const auto outputs = graph.outputs(op);
      const bool may_run = graph.recomputable(op) || first_stages[i] >= stage;
      const bool missed = std::any_of(outputs.begin(), outputs.end(), [&](ValueId output) {
        return needed[output] && kept.at(stage, output) == 0;
      });
      if (first_stages[i] != stage && !(missed && may_run)) continue;
      runs.at(stage, op) = 1;
      for (const ValueId output : outputs) needed[output] = false;
      for (const ValueId input : graph.inputs(op)) needed[input] = !graph.resident(input);
    }
  }
  return runs;
}

std::vector<std::size_t> one_op_a_stage(const Graph& graph) {
  std::vector<std::size_t> stages(graph.ops().size());
  std::iota(stages.begin(), stages.end(), std::size_t{0});
  return stages;
}

Plan plan_of(const Graph& graph, const StageRuns& runs) {
  std::vector<OpId> order;
  for (std::size_t stage = 0; stage < runs.stages(); ++stage) {
    for (const OpId op : graph.ops()) {
      if (runs.at(stage, op) != 0) order.push_back(op);
    }
  }
  return with_earliest_frees(graph, order);
}

std::optional<StageKept> kept_of(const Graph& graph, const Plan& plan) {
  StageKept kept(graph.ops().size(), graph.values().size(), 0);
  IdVector<ValueId, char> there(graph.values().size(), 0);
  std::size_t stage = 0;
  bool entered = true;
  for (const Step step : plan.steps) {
    if (step.kind() == StepKind::free) {
      there[step.value()] = 0;
      continue;
    }
    if (!entered) {
      for (const ValueId value : graph.values()) {
        if (stage < graph.ops().size()) kept.at(stage, value) = there[value];
      }
      entered = true;
    }
    const OpId op = step.op();
    if (op.index > stage) return std::nullopt;
    if (op.index == stage) {
      ++stage;
      entered = false;
    }
    for (const ValueId output : graph.outputs(op)) there[output] = 1;
  }
  return kept;
}

}  // namespace reprise
