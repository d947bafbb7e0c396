// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include <algorithm>
#include <stdexcept>

namespace reprise::runtime {
namespace {

bool is_compute(std::int32_t step) { return step >= 0; }
std::int32_t freed_value(std::int32_t step) { return ~step; }

class ScheduleBuilder {
 public:
  ScheduleBuilder(std::shared_ptr<const Program> program, std::span<const std::int32_t> steps)
      : program_(*program),
        steps_(steps),
        there_(program_.view_of_slot.size()),
        runs_(program_.operations.size()),
        last_read_(program_.slots_of_value.size(), kNever) {
    schedule_.program = std::move(program);
    for (const SlotId slot : program_.inputs) there_[at(slot)] = true;
    for (const auto& [slot, tensor] : program_.constants) there_[at(slot)] = true;
    count_runs();
  }

  Schedule done() {
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      step_ = step;
      if (!is_compute(steps_[step])) {
        free(freed_value(steps_[step]));
        continue;
      }
      const std::int32_t op = steps_[step];
      if (op == program_.outside) {
        left_at_ = step;
        leave();
      } else {
        compute(op, step);
      }
      if (left_) hand_over(step);
    }
    if (!left_) throw std::invalid_argument("the plan never leaves forward");
    schedule_.stages.back().end = schedule_.instructions.size();
    let_inputs_go();
    return std::move(schedule_);
  }

 private:
  static constexpr std::size_t kNever = SIZE_MAX;

  // Which ops run more than once, and the last step that makes or reads each value or input.
  void count_runs() {
    total_runs_.resize(program_.operations.size());
    last_input_read_.resize(program_.view_of_slot.size());
    replayed_.resize(program_.calls.size());
    for (const Call& call : program_.calls) {
      if (call.replays != kNone) replayed_[at(call.replays)] = true;
      if (call.random &&
          std::ranges::find(schedule_.random, call.device) == schedule_.random.end()) {
        schedule_.random.push_back(call.device);
      }
    }
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      if (!is_compute(steps_[step])) continue;
      const Operation& operation = program_.operations.at(at(steps_[step]));
      ++total_runs_[at(steps_[step])];
      for (const std::int32_t value : operation.read) last_read_[at(value)] = step;
      for (const std::int32_t value : operation.made) last_read_[at(value)] = step;
      for (const CallId call : operation.calls) note_input_reads(program_.calls[at(call)], step);
    }
  }

  void note_input_reads(const Call& call, std::size_t step) {
    for (const Argument& argument : call.arguments) {
      for (const SlotId slot : argument.slots) {
        if (slot == kNone || program_.value_of_slot[at(slot)] != kNone) continue;
        last_input_read_[at(source_of(slot))] = step;
      }
    }
  }

  void emit(Instruction instruction) {
    instruction.step = static_cast<std::int32_t>(step_);
    schedule_.instructions.push_back(instruction);
  }

  // Before the next compute, is `value` freed?
  bool freed_next(std::int32_t value, std::size_t step) const {
    for (std::size_t i = step + 1; i < steps_.size() && !is_compute(steps_[i]); ++i) {
      if (freed_value(steps_[i]) == value) return true;
    }
    return false;
  }

  bool value_there(std::int32_t value) const {
    return std::ranges::any_of(program_.slots_of_value[at(value)],
                               [&](SlotId slot) { return there_[at(slot)]; });
  }

  // The slot is there, or is derived now from another of its value.
  void want(SlotId slot) {
    if (slot == kNone || there_[at(slot)]) return;
    const CallId view = program_.view_of_slot[at(slot)];
    if (view == kNone) throw std::invalid_argument("a plan reads a value that is not there");
    call(view, {.kind = Instruction::Kind::call});
  }

  void call(CallId id, Instruction instruction) {
    const Call& call = program_.calls[at(id)];
    for (const Argument& argument : call.arguments) {
      for (const SlotId slot : argument.slots) want(slot);
    }
    instruction.a = id;
    emit(instruction);
    for (const Result& result : call.results) {
      for (const SlotId slot : result.slots) {
        if (slot != kNone) there_[at(slot)] = true;
      }
    }
  }

  void compute(std::int32_t op, std::size_t step) {
    const Operation& operation = program_.operations[at(op)];
    const bool again = runs_[at(op)]++ > 0;
    const bool more = runs_[at(op)] < total_runs_[at(op)];

    std::vector<SlotId> stashed;
    for (const std::int32_t value : operation.made) {
      for (const SlotId slot : program_.slots_of_value[at(value)]) {
        if (!there_[at(slot)]) continue;
        stashed.push_back(slot);
        emit({.kind = Instruction::Kind::stash, .a = slot});
        there_[at(slot)] = false;
      }
    }
    for (const Takeover& takeover : operation.takeovers) {
      want(takeover.from);
      const bool in_place = stashed.empty() && freed_next(takeover.from_value, step);
      emit({.kind = in_place ? Instruction::Kind::take : Instruction::Kind::copy,
            .a = takeover.from,
            .b = takeover.to});
      there_[at(takeover.to)] = true;
    }
    for (const CallId id : operation.calls) {
      const bool random = program_.calls[at(id)].random;
      call(id, {.kind = Instruction::Kind::call,
                .save_random = random && !again && (more || replayed_[at(id)]),
                .replay_random = random && (again || program_.calls[at(id)].replays != kNone),
                .again = again});
    }
    if (stashed.empty()) return;
    for (const std::int32_t value : operation.made) {
      if (std::ranges::any_of(program_.slots_of_value[at(value)], [&](SlotId slot) {
            return std::ranges::find(stashed, slot) != stashed.end();
          })) {
        free(value);
      }
    }
    for (const SlotId slot : stashed) {
      emit({.kind = Instruction::Kind::unstash, .a = slot});
      there_[at(slot)] = true;
    }
  }

  // A gradient that is still to be handed over stays until then.
  void free(std::int32_t value) {
    if (left_ && holds_gradient(value)) return;
    for (const SlotId slot : program_.slots_of_value.at(at(value))) {
      if (!there_[at(slot)]) continue;
      emit({.kind = Instruction::Kind::clear, .a = slot});
      there_[at(slot)] = false;
    }
  }

  bool holds_gradient(std::int32_t value) const {
    for (std::size_t input = 0; input < program_.gradients.size(); ++input) {
      const SlotId slot = program_.gradients[input];
      if (slot != kNone && !handed_[input] && program_.value_of_slot[at(slot)] == value)
        return true;
    }
    return false;
  }

  void leave() {
    for (const SlotId slot : program_.outputs) want(slot);
    schedule_.forward_end = schedule_.instructions.size();
    schedule_.stages.emplace_back();
    for (const SlotId slot : program_.tangents) {
      if (slot != kNone) there_[at(slot)] = true;
    }
    left_ = true;
    handed_.resize(program_.inputs.size());
  }

  // The input or constant that a resident slot is a view of, or the slot itself.
  SlotId source_of(SlotId slot) const {
    for (CallId view = program_.view_of_slot[at(slot)]; view != kNone;
         view = program_.view_of_slot[at(slot)]) {
      slot = viewed_by(program_.calls[at(view)]);
    }
    return slot;
  }

  static SlotId viewed_by(const Call& view) {
    for (const Argument& argument : view.arguments) {
      if (argument.kind == Argument::Kind::tensor) return argument.slots[0];
    }
    throw std::invalid_argument("a view of nothing");
  }

  // Inputs and views of them are cleared after their last use, so that a step holds no activation
  // of the caller's longer than plain training does.
  void let_inputs_go() {
    std::vector<Instruction>& all = schedule_.instructions;
    std::vector<std::size_t> last(program_.view_of_slot.size(), kNever);
    std::vector<bool> guarded(program_.view_of_slot.size());
    const auto note = [&](SlotId slot, std::size_t i, bool matters) {
      if (slot == kNone || program_.value_of_slot[at(slot)] != kNone) return;
      last[at(slot)] = i;
      if (matters && i >= schedule_.forward_end) guarded[at(source_of(slot))] = true;
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].kind == Instruction::Kind::call) {
        const Call& call = program_.calls[at(all[i].a)];
        for (std::size_t a = 0; a < call.arguments.size(); ++a) {
          const bool matters =
              std::ranges::find(call.unread, static_cast<std::int32_t>(a)) == call.unread.end();
          for (const SlotId slot : call.arguments[a].slots) note(slot, i, matters);
        }
        for (const Result& result : call.results) {
          for (const SlotId slot : result.slots) note(slot, i, false);
        }
      }
    }
    for (const SlotId slot : program_.inputs) {
      if (guarded[at(slot)]) schedule_.guarded.push_back(slot);
    }
    for (const SlotId slot : program_.outputs) {
      if (slot != kNone && is_read_later(slot)) schedule_.guarded.push_back(slot);
    }
    for (const SlotId slot : program_.gradients) {  // handed over from where it lies
      if (slot != kNone) last[at(slot)] = kNever;
    }
    note_unneeded_outputs(last);
    insert_clears(last);
  }

  // Is the value of an output read after forward?
  bool is_read_later(SlotId slot) const {
    const std::int32_t value = program_.value_of_slot[at(slot)];
    return value != kNone && last_read_[at(value)] > left_at_ && last_read_[at(value)] != kNever;
  }

  void insert_clears(const std::vector<std::size_t>& last) {
    std::vector<std::vector<SlotId>> after(schedule_.instructions.size());
    std::vector<bool> is_output(last.size());
    for (const SlotId slot : program_.outputs) {
      if (slot != kNone) is_output[at(slot)] = true;
    }
    for (std::size_t slot = 0; slot < last.size(); ++slot) {
      if (last[slot] == kNever) continue;
      if (is_output[slot] && last[slot] < schedule_.forward_end) continue;
      after[last[slot]].push_back(static_cast<SlotId>(slot));
    }
    std::vector<Instruction> all;
    std::vector<std::size_t> moved(schedule_.instructions.size() + 1);
    for (std::size_t i = 0; i < schedule_.instructions.size(); ++i) {
      moved[i] = all.size();
      all.push_back(schedule_.instructions[i]);
      for (const SlotId slot : after[i]) {
        all.push_back({.kind = Instruction::Kind::clear, .a = slot, .step = all.back().step});
      }
    }
    moved.back() = all.size();
    schedule_.forward_end = moved[schedule_.forward_end];
    for (Stage& stage : schedule_.stages) stage.end = moved[stage.end];
    schedule_.instructions = std::move(all);
  }

  // Outputs are held by the caller; what backward does not read of them is not held by the step.
  void note_unneeded_outputs(const std::vector<std::size_t>& last) {
    for (const SlotId slot : program_.outputs) {
      if (slot == kNone || is_read_later(slot)) continue;
      const std::int32_t value = program_.value_of_slot[at(slot)];
      if (value != kNone) {
        for (const SlotId other : program_.slots_of_value[at(value)]) {
          schedule_.unneeded.push_back(other);
        }
      } else if (last[at(slot)] == kNever || last[at(slot)] < schedule_.forward_end) {
        schedule_.unneeded.push_back(slot);
      }
    }
  }

  // Ends a stage where gradients are final: made, and read no more, and so is what they are of: who
  // receives a gradient may change its parameter at once.
  void hand_over(std::size_t step) {
    std::vector<std::int32_t> ready;
    for (std::size_t input = 0; input < program_.gradients.size(); ++input) {
      const SlotId slot = program_.gradients[input];
      if (slot == kNone || handed_[input]) continue;
      const std::int32_t value = program_.value_of_slot[at(slot)];
      const bool is_final = value == kNone || (last_read_[at(value)] <= step && value_there(value));
      if (!is_final || last_input_read_[at(program_.inputs[input])] > step) continue;
      ready.push_back(static_cast<std::int32_t>(input));
      handed_[input] = true;
    }
    if (ready.empty()) return;
    for (const std::int32_t input : ready) want(program_.gradients[at(input)]);
    Stage& stage = schedule_.stages.back();
    stage.end = schedule_.instructions.size();
    for (const std::int32_t input : ready) {
      const std::int32_t value = program_.value_of_slot[at(program_.gradients[at(input)])];
      if (value == kNone) continue;
      for (const SlotId slot : program_.slots_of_value[at(value)]) {
        if (!there_[at(slot)]) continue;
        stage.cleared.push_back(slot);
        there_[at(slot)] = false;
      }
    }
    stage.inputs = std::move(ready);
    schedule_.stages.emplace_back();
  }

  const Program& program_;
  std::span<const std::int32_t> steps_;
  Schedule schedule_;
  std::size_t step_ = 0;            // being worked out
  std::vector<bool> there_;         // by slot
  std::vector<std::int32_t> runs_;  // by op, so far
  std::vector<std::int32_t> total_runs_;
  std::vector<std::size_t> last_read_;        // by value: the last step that makes or reads it
  std::vector<std::size_t> last_input_read_;  // by slot of an input: the last step that reads it
  std::vector<bool> replayed_;                // by call: another one draws as it did
  std::vector<bool> handed_;                  // by input
  bool left_ = false;                         // forward is over
  std::size_t left_at_ = 0;                   // the step that ended it
};

}  // namespace

Schedule make_schedule(std::shared_ptr<const Program> program,
                       std::span<const std::int32_t> steps) {
  return ScheduleBuilder(std::move(program), steps).done();
}

}  // namespace reprise::runtime
