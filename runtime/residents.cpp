// SPDX-License-Identifier: Apache-2.0
#include "runtime/residents.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace reprise::runtime {
namespace {

// What these arguments of a call are, or are views of.
std::vector<SlotId> sources_of(const Program& program, const Call& call,
                               const std::vector<std::int32_t>& arguments) {
  std::vector<SlotId> sources;
  for (const std::int32_t argument : arguments) {
    for (const SlotId slot : call.arguments[at(argument)].slots) {
      if (slot != kNone) sources.push_back(source_of(program, slot));
    }
  }
  return sources;
}

// The inputs among the slots that `slots_of` tells of calls.
template <class SlotsOf>
std::vector<std::int32_t> inputs_among(const Schedule& schedule, std::size_t begin, std::size_t end,
                                       const SlotsOf& slots_of) {
  const Program& program = *schedule.program;
  std::vector<std::int32_t> inputs;
  for (std::size_t i = begin; i < end; ++i) {
    if (schedule.instructions[i].kind != Instruction::Kind::call) continue;
    for (const SlotId slot : slots_of(program, program.calls[at(schedule.instructions[i].call)])) {
      const auto found = std::ranges::find(program.inputs, slot);
      if (found == program.inputs.end()) continue;
      const auto input = static_cast<std::int32_t>(found - program.inputs.begin());
      if (!contains(inputs, input)) inputs.push_back(input);
    }
  }
  return inputs;
}

}  // namespace

ResidentUses::ResidentUses(const Schedule& schedule)
    : last(schedule.program->view_of_slot.size(), kNever),
      read_by_forward(last.size()),
      read_by_backward(last.size()) {
  for (std::size_t i = 0; i < schedule.instructions.size(); ++i) {
    if (schedule.instructions[i].kind != Instruction::Kind::call) continue;
    note(*schedule.program, schedule.program->calls[at(schedule.instructions[i].call)],
         static_cast<Position>(i), i < schedule.forward_end);
  }
  for (const SlotId slot : schedule.program->gradients) {  // handed over from where it lies
    if (slot == kNone || !schedule.program->is_resident(slot)) continue;
    last[at(slot)] = std::ssize(schedule.instructions);
    read_by_backward[at(source_of(*schedule.program, slot))] = true;
  }
}

void ResidentUses::note(const Program& program, const Call& call, Position i, bool forward) {
  for (std::size_t a = 0; a < call.arguments.size(); ++a) {
    const auto index = static_cast<std::int32_t>(a);
    for (const SlotId slot : call.arguments[a].slots) {
      if (slot == kNone || !program.is_resident(slot)) continue;
      last[at(slot)] = i;
      if (contains(call.unread, index)) continue;
      const SlotId source = source_of(program, slot);
      if (!forward) read_by_backward[at(source)] = true;
      if (forward && !contains(call.bumped, index)) read_by_forward[at(source)] = true;
    }
  }
  for (const Result& result : call.results) {
    for (const SlotId slot : result.slots) {
      if (slot != kNone && program.is_resident(slot)) last[at(slot)] = i;
    }
  }
}

void note_inputs(Schedule& schedule, const ResidentUses& uses) {
  const Program& program = *schedule.program;
  const std::vector<std::int32_t> changed = changed_by_backward(schedule);
  for (std::int32_t i = 0; i < std::ssize(program.inputs); ++i) {
    const SlotId slot = program.inputs[at(i)];
    if (uses.read_by_backward[at(slot)] && !contains(changed, i)) {
      schedule.read_by_backward.push_back(i);
    }
    if (uses.read_by_forward[at(slot)] && !contains(program.remembered, slot)) {
      schedule.read_by_forward.push_back(i);
    }
  }
}

void clear_residents(Schedule& schedule, const std::vector<Position>& last) {
  const auto forward_end = static_cast<Position>(schedule.forward_end);
  std::vector<std::vector<SlotId>> after(schedule.instructions.size());
  for (SlotId slot = 0; slot < std::ssize(last); ++slot) {
    const Position i = last[at(slot)];
    if (i == kNever || i == std::ssize(schedule.instructions)) continue;
    if (i < forward_end && contains(schedule.program->outputs, slot)) continue;
    after[static_cast<std::size_t>(i)].push_back(slot);
  }
  std::vector<Instruction> all;
  std::vector<std::size_t> moved;  // by instruction: where it is now
  for (std::size_t i = 0; i < schedule.instructions.size(); ++i) {
    moved.push_back(all.size());
    all.push_back(schedule.instructions[i]);
    for (const SlotId slot : after[i]) {
      all.push_back({.kind = Instruction::Kind::clear, .slot = slot, .step = all.back().step});
    }
  }
  moved.push_back(all.size());
  schedule.forward_end = moved[schedule.forward_end];
  for (Stage& stage : schedule.stages) {
    stage.begin = moved[stage.begin];
    stage.end = moved[stage.end];
  }
  schedule.instructions = std::move(all);
}

std::vector<std::int32_t> changed_inputs(const Schedule& schedule) {
  return inputs_among(schedule, 0, schedule.forward_end, &written_by);
}

std::vector<std::int32_t> counted_inputs(const Schedule& schedule) {
  const auto counted = [](const Program& program, const Call& call) {
    return sources_of(program, call, call.bumped);
  };
  return inputs_among(schedule, 0, schedule.forward_end, counted);
}

std::vector<std::int32_t> changed_by_backward(const Schedule& schedule) {
  return inputs_among(schedule, schedule.forward_end, schedule.instructions.size(), &written_by);
}

std::vector<SlotId> written_by(const Program& program, const Call& call) {
  std::vector<SlotId> written = sources_of(program, call, call.bumped);
  const std::vector<SlotId> scratch = sources_of(program, call, call.scratch);
  written.insert(written.end(), scratch.begin(), scratch.end());
  return written;
}

SlotId viewed_by(const Call& view) {
  for (const Argument& argument : view.arguments) {
    if (argument.kind == Argument::Kind::tensor) return argument.slots[0];
  }
  throw std::invalid_argument("a view of nothing");
}

SlotId source_of(const Program& program, SlotId slot) {
  for (CallId view = program.view_of_slot[at(slot)]; view != kNone;
       view = program.view_of_slot[at(slot)]) {
    slot = viewed_by(program.calls[at(view)]);
  }
  return slot;
}

}  // namespace reprise::runtime
