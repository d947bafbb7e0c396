// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/simulator.h"

#include "reprise/core/lifetimes.h"

namespace reprise {
namespace {

// The state of a replay. A compute's bytes are settled only by the frees that follow it, since an
// input freed before the next compute may have been overwritten: `running_` is lowered then.
class Machine {
 public:
  explicit Machine(const Graph& graph)
      : graph_(graph),
        there_(graph.values().size(), 0),
        runs_(graph.ops().size(), 0),
        overwritten_by_(graph.values().size(), 0) {
    for (const ValueId value : graph.values()) there_[value] = graph.resident(value) ? 1 : 0;
  }

  void compute(OpId op, std::size_t step) {
    if (op.index >= graph_.ops().size()) fail({Rule::known_op, step, op, {}});
    if (runs_[op] != 0 && !graph_.recomputable(op)) fail({Rule::runs_once, step, op, {}});
    runs_[op] = 1;
    for (const ValueId input : graph_.inputs(op)) {
      if (there_[input] == 0) fail({Rule::inputs_there, step, op, input});
    }
    compute_number_ = step + 1;
    Bytes second_buffers;
    for (const ValueId output : graph_.outputs(op)) {
      const Bytes bytes = graph_.bytes(output);
      if (there_[output] != 0) {
        second_buffers += bytes;
        continue;
      }
      there_[output] = 1;
      held_ += bytes;
      if (const auto input = graph_.overwritten(output)) overwritten_by_[*input] = compute_number_;
    }
    running_ = held_ + second_buffers + graph_.workspace(op);
  }

  // True where the freed value shared its buffer with an output of the op before.
  bool free(ValueId value, std::size_t step) {
    if (value.index >= graph_.values().size()) fail({Rule::known_value, step, {}, value});
    if (graph_.resident(value)) fail({Rule::frees_no_resident, step, {}, value});
    if (there_[value] == 0) fail({Rule::frees_there, step, {}, value});
    there_[value] = 0;
    held_ -= graph_.bytes(value);
    const bool shared = overwritten_by_[value] == compute_number_;
    if (shared) running_ -= graph_.bytes(value);
    return shared;
  }

  void finish(std::size_t steps) const {
    for (const OpId op : graph_.ops()) {
      if (runs_[op] == 0) fail({Rule::every_op_runs, steps, op, {}});
    }
    for (const ValueId value : graph_.values()) {
      if (graph_.kept(value) && there_[value] == 0) fail({Rule::kept_there, steps, {}, value});
    }
  }

  Bytes held() const { return held_; }        // now
  Bytes running() const { return running_; }  // while the last compute ran
  bool there(ValueId value) const { return there_[value] != 0; }

 private:
  [[noreturn]] void fail(const Violation& violation) const { throw PlanError(graph_, violation); }

  const Graph& graph_;
  IdVector<ValueId, char> there_;
  IdVector<OpId, char> runs_;
  IdVector<ValueId, std::size_t> overwritten_by_;  // the compute that could, by its number
  std::size_t compute_number_ = 0;                 // of the last compute; 0: none yet
  Bytes held_;
  Bytes running_;
};

}  // namespace

Replay simulate(const Graph& graph, const Plan& plan) {
  Machine machine(graph);
  Replay replay;
  replay.in_use.resize(plan.steps.size());
  std::optional<std::size_t> last_compute;
  const auto settle = [&] {
    if (!last_compute) return;
    replay.in_use[*last_compute] = machine.running();
    if (replay.peak_step && machine.running() <= replay.peak) return;
    replay.peak = machine.running();
    replay.peak_step = last_compute;
  };
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step step = plan.steps[i];
    if (step.kind() == StepKind::free) {
      machine.free(step.value(), i);
      replay.in_use[i] = machine.held();
      continue;
    }
    settle();
    machine.compute(step.op(), i);
    replay.cost += graph.cost(step.op());
    last_compute = i;
  }
  settle();
  machine.finish(plan.steps.size());
  return replay;
}

Bytes base_peak(const Graph& graph) { return simulate(graph, base_run(graph)).peak; }

std::vector<ValueId> alive_during(const Graph& graph, const Plan& plan, std::size_t step) {
  Machine machine(graph);
  for (std::size_t i = 0; i <= step; ++i) {
    const Step now = plan.steps[i];
    if (now.kind() == StepKind::free) {
      machine.free(now.value(), i);
    } else {
      machine.compute(now.op(), i);
    }
  }
  ValueSet counts(graph.values().size(), false);
  for (const ValueId value : graph.values()) {
    counts[value] = machine.there(value) && !graph.resident(value);
  }
  for (std::size_t i = step + 1; i < plan.steps.size(); ++i) {
    if (plan.steps[i].kind() == StepKind::compute) break;
    const ValueId value = plan.steps[i].value();
    if (machine.free(value, i)) counts[value] = false;
  }
  std::vector<ValueId> alive;
  for (const ValueId value : graph.values()) {
    if (counts[value]) alive.push_back(value);
  }
  return alive;
}

}  // namespace reprise
