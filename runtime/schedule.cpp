// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "runtime/residents.h"

namespace reprise::runtime {
namespace {

bool is_compute(std::int32_t step) { return step >= 0; }
std::int32_t freed_value(std::int32_t step) { return ~step; }

void check(const Program& program, std::span<const std::int32_t> steps) {
  for (const std::int32_t step : steps) {
    const std::size_t known =
        is_compute(step) ? program.operations.size() : program.slots_of_value.size();
    const std::int32_t number = is_compute(step) ? step : freed_value(step);
    if (at(number) >= known) {
      throw std::invalid_argument("a plan " +
                                  std::string(is_compute(step) ? "computes op " : "frees value ") +
                                  std::to_string(number) + " of " + std::to_string(known));
    }
  }
  const auto leaves = std::ranges::count(steps, program.outside);
  if (leaves != 1) {
    throw std::invalid_argument("a plan leaves forward " + std::to_string(leaves) + " times");
  }
}

// What can be said of a plan before it is worked out.
struct Outlook {
  Outlook(const Program& program, std::span<const std::int32_t> steps)
      : runs(program.operations.size()),
        last_use(program.slots_of_value.size(), kNever),
        last_read(program.view_of_slot.size(), kNever),
        replayed(program.calls.size()) {
    for (const Call& call : program.calls) {
      if (call.replays != kNone) replayed[at(call.replays)] = true;
    }
    for (Position step = 0; step < std::ssize(steps); ++step) {
      const std::int32_t op = steps[static_cast<std::size_t>(step)];
      if (!is_compute(op)) continue;
      if (op == program.outside) left_at = step;
      note_uses(program, program.operations[at(op)], step);
      ++runs[at(op)];
    }
  }

  void note_uses(const Program& program, const Operation& operation, Position step) {
    for (const std::int32_t value : operation.read) last_use[at(value)] = step;
    for (const std::int32_t value : operation.made) last_use[at(value)] = step;
    for (const CallId call : operation.calls) {
      for (const Argument& argument : program.calls[at(call)].arguments) {
        for (const SlotId slot : argument.slots) {
          if (slot == kNone || !program.is_resident(slot)) continue;
          last_read[at(source_of(program, slot))] = step;
        }
      }
    }
  }

  Position left_at = kNever;        // the step that ends forward
  std::vector<std::int32_t> runs;   // by op
  std::vector<Position> last_use;   // by value: the last step that makes or reads it
  std::vector<Position> last_read;  // by slot of an input: … that reads it or a view of it
  std::vector<bool> replayed;       // by call: another one draws as it did
};

// How many gradients lie in each value.
std::vector<int> gradients_by_value(const Program& program) {
  std::vector<int> count(program.slots_of_value.size());
  for (const SlotId slot : program.gradients) {
    if (slot != kNone && !program.is_resident(slot)) ++count[at(program.value_of_slot[at(slot)])];
  }
  return count;
}

// Goes through a plan step by step, and knows which slots are there.
class Walk {
 public:
  Walk(std::shared_ptr<const Program> program, std::span<const std::int32_t> steps,
       const Outlook& outlook, const Ways& ways)
      : program_(*program),
        steps_(steps),
        outlook_(outlook),
        ways_(ways),
        renewed_(program_.calls.size()),
        there_(program_.view_of_slot.size()),
        kept_(program_.slots_of_value.size()),
        runs_(program_.operations.size()),
        handed_(program_.inputs.size()),
        gradients_in_(gradients_by_value(program_)) {
    schedule_.program = std::move(program);
    for (const CallId id : ways.renewed) note_renewed(id);
    for (const SlotId slot : program_.inputs) there_[at(slot)] = true;
    for (const auto& [slot, tensor] : program_.constants) there_[at(slot)] = true;
  }

  Schedule done() {
    for (; step_ < std::ssize(steps_); ++step_) {
      const std::int32_t step = steps_[static_cast<std::size_t>(step_)];
      if (!is_compute(step)) {
        free(freed_value(step));
        continue;
      }
      if (step == program_.outside) {
        leave();
      } else {
        compute(step);
      }
      if (is_backward()) hand_over();
    }
    schedule_.stages.back().end = schedule_.instructions.size();
    check_gradients();
    return std::move(schedule_);
  }

 private:
  bool is_backward() const { return step_ >= outlook_.left_at; }

  void emit(Instruction instruction) {
    instruction.step = static_cast<std::int32_t>(step_);
    schedule_.instructions.push_back(instruction);
  }

  // Its other results stay for its renewal, whatever the plan frees.
  void note_renewed(CallId id) {
    const Call& call = program_.calls[at(id)];
    if (call.renewal == kNone) throw std::invalid_argument("a call has no renewal");
    renewed_[at(id)] = true;
    for (const Result& result : std::span(call.results).subspan(1)) {
      for (const SlotId slot : result.slots) {
        if (slot != kNone && !program_.is_resident(slot)) {
          kept_[at(program_.value_of_slot[at(slot)])] = true;
        }
      }
    }
  }

  // The slot is there, or is derived now from another of its value.
  void want(SlotId slot) {
    if (slot == kNone || there_[at(slot)]) return;
    const CallId view = program_.view_of_slot[at(slot)];
    if (view == kNone) {
      throw std::invalid_argument("step " + std::to_string(step_) + " of a plan reads value " +
                                  std::to_string(program_.value_of_slot[at(slot)]) +
                                  ", which is not there");
    }
    call(view, {.kind = Instruction::Kind::call});
  }

  void call(CallId id, Instruction instruction) {
    const Call& call = program_.calls[at(id)];
    for (const Argument& argument : call.arguments) {
      for (const SlotId slot : argument.slots) want(slot);
    }
    instruction.call = id;
    if (const auto found = ways_.parts.find(id); found != ways_.parts.end()) {
      instruction.parts = found->second;
    }
    instruction.at_once = contains(ways_.at_once, id);
    emit(instruction);
    for (const Result& result : call.results) {
      for (const SlotId slot : result.slots) {
        if (slot != kNone) there_[at(slot)] = true;
      }
    }
  }

  void compute(std::int32_t op) {
    const Operation& operation = program_.operations[at(op)];
    const bool again = runs_[at(op)]++ > 0;
    const bool more = runs_[at(op)] < outlook_.runs[at(op)];

    const std::vector<SlotId> stashed = stash(operation.made);
    for (const Takeover& takeover : operation.takeovers) {
      want(takeover.source);
      const bool in_place = stashed.empty() && is_freed_next(takeover.value);
      emit({.kind = in_place ? Instruction::Kind::take : Instruction::Kind::copy,
            .slot = takeover.source,
            .target = takeover.target});
      there_[at(takeover.target)] = true;
    }
    std::size_t done = 0;
    while (done < operation.calls.size()) {
      const CallId id = operation.calls[done++];
      const Call& it = program_.calls[at(id)];
      const bool is_left_to_renewal = renewed_[at(id)] && (again || ways_.parts.contains(id));
      if (!again || !is_left_to_renewal) {
        call(id, {.kind = Instruction::Kind::call,
                  .save_random = it.random && !again && (more || outlook_.replayed[at(id)]),
                  .replay_random = it.random && (again || it.replays != kNone),
                  .again = again});
      }
      if (is_left_to_renewal) {
        call(it.renewal, {.kind = Instruction::Kind::call, .again = again});
        done += it.tail.size();
      }
    }
    unstash(operation.made, stashed);
  }

  // Puts aside what an op makes a second time: somebody may hold it, and it is as good as new. Not
  // what renewals read, as they do not make it.
  std::vector<SlotId> stash(const std::vector<std::int32_t>& made) {
    std::vector<SlotId> stashed;
    for (const std::int32_t value : made) {
      if (kept_[at(value)]) continue;
      for (const SlotId slot : program_.slots_of_value[at(value)]) {
        if (!there_[at(slot)]) continue;
        stashed.push_back(slot);
        emit({.kind = Instruction::Kind::stash, .slot = slot});
        there_[at(slot)] = false;
      }
    }
    return stashed;
  }

  void unstash(const std::vector<std::int32_t>& made, const std::vector<SlotId>& stashed) {
    for (const std::int32_t value : made) {
      const auto is_stashed = [&](SlotId slot) { return contains(stashed, slot); };
      if (std::ranges::any_of(program_.slots_of_value[at(value)], is_stashed)) clear(value);
    }
    for (const SlotId slot : stashed) {
      emit({.kind = Instruction::Kind::unstash, .slot = slot});
      there_[at(slot)] = true;
    }
  }

  // Before the next compute, is `value` freed?
  bool is_freed_next(std::int32_t value) const {
    const auto rest = steps_.subspan(static_cast<std::size_t>(step_) + 1);
    const auto frees_end = std::ranges::find_if(rest, is_compute);
    return std::find(rest.begin(), frees_end, ~value) != frees_end;
  }

  // A gradient stays from its last use on until it is handed over; what renewals read stays.
  void free(std::int32_t value) {
    const bool is_used_again = outlook_.last_use[at(value)] > step_;
    const bool has_to_stay = is_used_again ? kept_[at(value)] : gradients_in_[at(value)] > 0;
    if (!has_to_stay) clear(value);
  }

  void clear(std::int32_t value) {
    for (const SlotId slot : program_.slots_of_value[at(value)]) {
      if (!there_[at(slot)]) continue;
      emit({.kind = Instruction::Kind::clear, .slot = slot});
      there_[at(slot)] = false;
    }
  }

  void leave() {
    for (const SlotId slot : program_.outputs) want(slot);
    schedule_.forward_end = schedule_.instructions.size();
    schedule_.stages.push_back({.begin = schedule_.forward_end});
    for (const SlotId slot : program_.tangents) {
      if (slot != kNone) there_[at(slot)] = true;
    }
  }

  // Ends a stage where gradients are final.
  void hand_over() {
    Stage& stage = schedule_.stages.back();
    for (std::size_t input = 0; input < program_.gradients.size(); ++input) {
      if (program_.gradients[input] == kNone || handed_[input] || !is_final(input)) continue;
      stage.inputs.push_back(static_cast<std::int32_t>(input));
      handed_[input] = true;
    }
    if (stage.inputs.empty()) return;
    for (const std::int32_t input : stage.inputs) want(program_.gradients[at(input)]);
    stage.end = schedule_.instructions.size();
    for (const std::int32_t input : stage.inputs) {
      const std::int32_t value = program_.value_of_slot[at(program_.gradients[at(input)])];
      if (value == kNone || --gradients_in_[at(value)] > 0) continue;
      for (const SlotId slot : program_.slots_of_value[at(value)]) {
        if (there_[at(slot)]) stage.cleared.push_back(slot);
        there_[at(slot)] = false;
      }
    }
    const std::size_t end = stage.end;
    schedule_.stages.push_back({.begin = end});
  }

  // A gradient is, once it is made, and touched no more, and what it is of is read no more: who
  // receives it may change the parameter at once.
  bool is_final(std::size_t input) const {
    const SlotId slot = program_.gradients[input];
    const std::int32_t value = program_.value_of_slot[at(slot)];
    if (outlook_.last_read[at(program_.inputs[input])] > step_) return false;
    if (value == kNone) return outlook_.last_read[at(source_of(program_, slot))] <= step_;
    return outlook_.last_use[at(value)] <= step_ && is_there(value);
  }

  void check_gradients() const {
    for (std::size_t input = 0; input < program_.gradients.size(); ++input) {
      if (program_.gradients[input] == kNone || handed_[input]) continue;
      throw std::invalid_argument("a plan never makes the gradient of input " +
                                  std::to_string(input));
    }
  }

  bool is_there(std::int32_t value) const {
    return std::ranges::any_of(program_.slots_of_value[at(value)],
                               [&](SlotId slot) { return there_[at(slot)]; });
  }

  const Program& program_;
  std::span<const std::int32_t> steps_;
  const Outlook& outlook_;
  const Ways& ways_;
  Schedule schedule_;
  Position step_ = 0;               // being worked out
  std::vector<bool> renewed_;       // by call
  std::vector<bool> there_;         // by slot
  std::vector<bool> kept_;          // by value: to its last use, whatever the plan frees
  std::vector<std::int32_t> runs_;  // by op, so far
  std::vector<bool> handed_;        // by input: its gradient is handed over
  std::vector<int> gradients_in_;   // by value: how many are still to be handed over
};

// Outputs are held by the caller. Those that backward does not read are not held by the step, the
// others may not change before it.
void note_outputs(Schedule& schedule, const Outlook& outlook, const ResidentUses& uses) {
  const Program& program = *schedule.program;
  const std::vector<int> gradients_in = gradients_by_value(program);
  for (const SlotId slot : program.outputs) {
    if (slot == kNone) continue;
    const std::int32_t value = program.value_of_slot[at(slot)];
    if (value == kNone) {
      const bool is_needed = uses.last[at(slot)] >= static_cast<Position>(schedule.forward_end);
      if (!is_needed) schedule.unneeded.push_back(slot);
    } else if (outlook.last_use[at(value)] > outlook.left_at || gradients_in[at(value)] > 0) {
      schedule.guarded_outputs.push_back(slot);
    } else {
      const std::vector<SlotId>& slots = program.slots_of_value[at(value)];
      schedule.unneeded.insert(schedule.unneeded.end(), slots.begin(), slots.end());
    }
  }
}

}  // namespace

std::size_t random_turns(const Schedule& schedule, std::size_t begin, std::size_t end) {
  std::map<CallId, std::size_t> first;  // run of each random call
  for (std::size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& instruction = schedule.instructions[i];
    if (instruction.save_random) first.try_emplace(instruction.call, i);
  }
  std::size_t turns = 0;
  std::size_t last = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const Instruction& instruction = schedule.instructions[i];
    if (!instruction.replay_random) continue;
    const CallId replays = schedule.program->calls[at(instruction.call)].replays;
    const std::size_t drawn = first.at(replays == kNone ? instruction.call : replays);
    if (turns == 0 || drawn <= last) ++turns;
    last = drawn;
  }
  return turns;
}

Schedule make_schedule(std::shared_ptr<const Program> program, std::span<const std::int32_t> steps,
                       const Ways& ways) {
  check(*program, steps);
  const Outlook outlook(*program, steps);
  Schedule schedule = Walk(std::move(program), steps, outlook, ways).done();
  for (const Call& call : schedule.program->calls) {
    if (call.random && !contains(schedule.random, call.device)) {
      schedule.random.push_back(call.device);
    }
  }
  const ResidentUses uses(schedule);
  note_inputs(schedule, uses);
  note_outputs(schedule, outlook, uses);
  clear_residents(schedule, uses.last);
  schedule.gives_back = ways.gives_back;
  return schedule;
}

}  // namespace reprise::runtime
