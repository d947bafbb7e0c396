// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/checker.h"

#include <algorithm>
#include <set>

namespace reprise {
namespace {

// A compute and the frees that come before the next one.
struct Block {
  OpId op;
  std::set<ValueId> freed_after;
};

Block block_at(const Plan& plan, std::size_t step) {
  Block block{plan.steps[step].op(), {}};
  for (std::size_t i = step + 1; i < plan.steps.size(); ++i) {
    if (plan.steps[i].kind() == StepKind::compute) break;
    block.freed_after.insert(plan.steps[i].value());
  }
  return block;
}

// "While an op runs, its inputs, its outputs and its workspace are all there", and all else that
// is. `held` is the bytes of all non-resident values there before it.
Bytes bytes_while_running(const Graph& graph, const Block& block, const ValueSet& there,
                          Bytes held) {
  Bytes sum = held + graph.workspace(block.op);
  for (const ValueId output : graph.outputs(block.op)) {
    sum += graph.bytes(output);  // where it is there already this is the second buffer
    const auto input = graph.overwritten(output);
    if (input && block.freed_after.contains(*input) && !there[output]) sum -= graph.bytes(*input);
  }
  return sum;
}

}  // namespace

Verdict check(const Graph& graph, const Plan& plan) {
  ValueSet there(graph.values().size(), false);
  OpSet has_run(graph.ops().size(), false);
  for (const ValueId value : graph.values()) there[value] = graph.resident(value);
  Verdict verdict;
  Bytes held;
  std::size_t step = 0;
  const auto broken = [&](Rule rule, OpId op, ValueId value) {
    verdict.broken = Violation{rule, step, op, value};
    return verdict;
  };

  for (; step < plan.steps.size(); ++step) {
    if (plan.steps[step].kind() == StepKind::free) {
      const ValueId value = plan.steps[step].value();
      if (value.index >= graph.values().size()) return broken(Rule::known_value, {}, value);
      if (graph.resident(value)) return broken(Rule::frees_no_resident, {}, value);
      if (!there[value]) return broken(Rule::frees_there, {}, value);
      there[value] = false;
      held -= graph.bytes(value);
      continue;
    }

    const OpId op = plan.steps[step].op();
    if (op.index >= graph.ops().size()) return broken(Rule::known_op, op, {});
    if (has_run[op] && !graph.recomputable(op)) return broken(Rule::runs_once, op, {});
    for (const ValueId input : graph.inputs(op)) {
      if (!there[input]) return broken(Rule::inputs_there, op, input);
    }
    verdict.peak =
        std::max(verdict.peak, bytes_while_running(graph, block_at(plan, step), there, held));
    verdict.cost += graph.cost(op);
    has_run[op] = true;
    for (const ValueId output : graph.outputs(op)) {
      if (there[output]) continue;
      there[output] = true;
      held += graph.bytes(output);
    }
  }

  for (const OpId op : graph.ops()) {
    if (!has_run[op]) return broken(Rule::every_op_runs, op, {});
  }
  for (const ValueId value : graph.values()) {
    if (graph.kept(value) && !there[value]) return broken(Rule::kept_there, {}, value);
  }
  return verdict;
}

}  // namespace reprise
