// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/checkmate/schedule.h"

#include <algorithm>
#include <stdexcept>

#include "reprise/core/lifetimes.h"

namespace reprise {
namespace {

OpId op_at(std::size_t index) { return OpId{static_cast<std::uint32_t>(index)}; }

void sort_and_single(std::vector<OpId>& ops) {
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
}

// Writes what is stored for one segment: the forward ops from `begin` to before `end`, where the
// loss counts as one more. Numbers are those of the paper's rules 4 to 6.
void store_segment(StageMatrix& stored, std::size_t begin, std::size_t end) {
  const std::size_t stages = stored.stages();
  const std::size_t loss = stages / 2;
  const auto store_from_begin = [&](std::size_t stage) {
    for (std::size_t i = begin; i < std::min(stage, end); ++i) stored.at(stage, op_at(i)) = 1;
  };
  for (std::size_t i = begin; i < end; ++i) store_from_begin(stages - 1 - i);
  for (std::size_t stage = begin; stage <= end; ++stage) {
    store_from_begin(stage);
    const std::size_t mirrored = stages - 1 - stage;
    for (std::size_t i = begin; i < std::min(end, loss); ++i) {
      const std::size_t gradient = stages - 1 - i;
      if (gradient < mirrored) stored.at(mirrored, op_at(gradient)) = 1;
    }
  }
}

}  // namespace

OpGraph::OpGraph(const Graph& graph)
    : before(graph.ops().size()),
      after(graph.ops().size()),
      bytes(graph.ops().size()),
      costs(graph.ops().size()) {
  for (const OpId op : graph.ops()) {
    costs[op] = graph.cost(op);
    for (const ValueId output : graph.outputs(op)) bytes[op] += graph.bytes(output);
    for (const ValueId input : graph.inputs(op)) {
      if (const auto producer = graph.producer(input)) before[op].push_back(*producer);
    }
    sort_and_single(before[op]);
    for (const OpId producer : before[op]) after[producer].push_back(op);
  }
}

bool is_mirrored(const Graph& graph) {
  const std::size_t count = graph.ops().size();
  if (!graph.has_phases() || count % 2 == 0) return false;
  for (std::size_t i = 0; i < count / 2; ++i) {
    if (graph.phase(op_at(i)) != Phase::forward) return false;
    const OpId gradient = op_at(count - 1 - i);
    if (graph.phase(gradient) != Phase::backward || graph.gradient_of(gradient) != op_at(i)) {
      return false;
    }
  }
  return graph.phase(op_at(count / 2)) == Phase::loss;
}

StageMatrix stored_from_checkpoints(const Graph& graph, std::span<const OpId> checkpoints) {
  if (!is_mirrored(graph)) throw std::logic_error("checkpoints need a mirrored graph");
  const std::size_t stages = graph.ops().size();
  const OpId loss = op_at(stages / 2);
  StageMatrix stored(stages, stages, 0);
  const OpGraph ops(graph);
  for (const OpId to : graph.ops()) {
    for (const OpId from : ops.before[to]) {
      stored.at(to.index, from) = 1;
      if (from < loss) continue;
      for (std::size_t stage = from.index + 1; stage < to.index; ++stage)
        stored.at(stage, from) = 1;
    }
  }
  std::size_t begin = 0;
  for (const OpId checkpoint : checkpoints) {
    for (std::size_t stage = checkpoint.index + 1; stage < stages; ++stage) {
      stored.at(stage, checkpoint) = 1;
    }
    store_segment(stored, begin, checkpoint.index);
    begin = checkpoint.index;
  }
  store_segment(stored, begin, loss.index + 1);
  return stored;
}

StageMatrix fewest_computed(const OpGraph& ops, const StageMatrix& stored) {
  const std::size_t stages = stored.stages();
  StageMatrix computed(stages, stages, 0);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    computed.at(stage, op_at(stage)) = 1;
    for (std::size_t i = 0; i < stages && stage + 1 < stages; ++i) {
      const OpId op = op_at(i);
      if (stored.at(stage + 1, op) && !stored.at(stage, op)) computed.at(stage, op) = 1;
    }
    for (std::size_t i = stage + 1; i-- > 0;) {
      if (!computed.at(stage, op_at(i))) continue;
      for (const OpId input : ops.before[op_at(i)]) {
        if (!stored.at(stage, input)) computed.at(stage, input) = 1;
      }
    }
  }
  return computed;
}

StageReplay replay(const OpGraph& ops, const StageSchedule& schedule) {
  const StageMatrix& computed = schedule.computed;
  const StageMatrix& stored = schedule.stored;
  const std::size_t stages = stored.stages();
  OpSet there(stages, false);
  Bytes in_use;
  StageReplay result;
  const auto needed_after = [&](OpId op, OpId last, std::size_t stage) {
    if (stage + 1 < stages && stored.at(stage + 1, op)) return true;
    const auto& readers = ops.after[op];
    return std::any_of(readers.begin(), readers.end(),
                       [&](OpId reader) { return reader > last && computed.at(stage, reader); });
  };
  const auto free_unless_needed = [&](OpId op, OpId last, std::size_t stage) {
    if (!there[op] || needed_after(op, last, stage)) return;
    there[op] = false;
    in_use -= ops.bytes[op];
  };
  for (std::size_t stage = 0; stage < stages; ++stage) {
    for (const OpId op : there.ids()) free_unless_needed(op, op, stage);
    for (const OpId op : there.ids()) {
      if (!computed.at(stage, op)) continue;
      for (const OpId input : ops.before[op]) {
        if (!there[input]) throw std::logic_error("the schedule lacks an input");
      }
      if (!there[op]) in_use += ops.bytes[op];
      there[op] = true;
      result.peak = std::max(result.peak, in_use);
      result.cost += ops.costs[op];
      ++result.evaluations;
      for (const OpId input : ops.before[op]) free_unless_needed(input, op, stage);
      free_unless_needed(op, op, stage);
    }
  }
  return result;
}

std::optional<StageSchedule> stages_from_plan(const Graph& graph, const Plan& plan) {
  const std::size_t stages = graph.ops().size();
  StageSchedule schedule{StageMatrix(stages, stages, 0), StageMatrix(stages, stages, 0)};
  std::size_t stage = 0;
  for (const Step step : plan.steps) {
    if (step.kind() != StepKind::compute) continue;
    const OpId op = step.op();
    if (stage == stages || op.index > stage || schedule.computed.at(stage, op)) return std::nullopt;
    schedule.computed.at(stage, op) = 1;
    if (op.index == stage) ++stage;
  }
  if (stage != stages) return std::nullopt;

  // Backwards: a value is stored from the stage after its last run to the last stage that reads it.
  const OpGraph ops(graph);
  OpSet needed(stages, false);
  for (std::size_t t = stages; t-- > 0;) {
    OpSet read(stages, false);
    for (const OpId op : graph.ops()) {
      if (!schedule.computed.at(t, op)) continue;
      for (const OpId input : ops.before[op]) read[input] = true;
    }
    for (const OpId op : graph.ops()) {
      if (schedule.computed.at(t, op)) {
        needed[op] = false;
      } else {
        needed[op] = needed[op] || read[op];
        if (needed[op]) schedule.stored.at(t, op) = 1;
      }
    }
  }
  return schedule;
}

}  // namespace reprise
