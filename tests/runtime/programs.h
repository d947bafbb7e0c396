// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program.h"
#include "runtime/schedule.h"

namespace reprise::runtime {

struct Slot {
  SlotId id = kNone;
};

// A constant, a slot or a list of slots.
struct Given : Argument {
  Given(bool value) : Argument{Kind::constant, value, {}} {}
  Given(int value) : Argument{Kind::constant, value, {}} {}
  Given(double value) : Argument{Kind::constant, value, {}} {}
  Given(Slot slot) : Argument{Kind::tensor, {}, {slot.id}} {}
  Given(std::initializer_list<Slot> all) : Argument{Kind::tensors, {}, {}} {
    for (const Slot slot : all) slots.push_back(slot.id);
  }
};

// Makes programs by hand. Ops, the values they make and their calls go by the same name.
class ProgramBuilder {
 public:
  Slot input(const std::string& name) {
    const Slot slot = new_slot(name, kNone);
    program_.inputs.push_back(slot.id);
    program_.gradients.push_back(kNone);
    program_.reached.push_back(true);
    return slot;
  }

  Slot constant(const std::string& name, at::Tensor tensor) {
    const Slot slot = new_slot(name, kNone);
    program_.constants.emplace_back(slot.id, std::move(tensor));
    return slot;
  }

  // An op that makes one value.
  Slot op(const std::string& name, const char* torch_op, std::vector<Given> arguments) {
    return op(name, torch_op, std::move(arguments), {name}).front();
  }

  // An op that makes values of these names.
  std::vector<Slot> op(const std::string& name, const char* torch_op, std::vector<Given> arguments,
                       const std::vector<std::string>& makes) {
    begin(name);
    read(arguments);
    std::vector<Slot> made;
    for (const std::string& value : makes) made.push_back(new_value(value));
    program_.operations.back().calls = {add_call(name, torch_op, std::move(arguments), made)};
    return made;
  }

  // An op that changes its first argument in place. The result is another value, or, where the
  // argument is resident, none.
  Slot change(const std::string& name, const char* torch_op, std::vector<Given> arguments) {
    begin(name);
    read(arguments);
    const SlotId from = arguments.front().slots[0];
    Slot to{from};
    if (!program_.is_resident(from)) {
      to = new_value(name);
      program_.operations.back().takeovers = {{program_.value_of_slot[at(from)], from, to.id}};
      arguments.front() = to;
    }
    program_.operations.back().calls = {add_call(name, torch_op, std::move(arguments), {Slot{}})};
    if (to.id == from) last_call().bumped = {0};
    return to;
  }

  // A slot that a view of the first argument's value or resident lies in.
  Slot view(const std::string& name, const char* torch_op, std::vector<Given> arguments) {
    const std::int32_t value = program_.value_of_slot[at(arguments.front().slots[0])];
    const Slot slot = new_slot(name, value);
    if (value != kNone) program_.slots_of_value[at(value)].push_back(slot.id);
    program_.view_of_slot[at(slot.id)] = add_call(name, torch_op, std::move(arguments), {slot});
    return slot;
  }

  // Ends forward. Returns the gradients of the outputs that have one.
  std::vector<Slot> outside(const std::vector<Slot>& outputs, std::vector<bool> differentiable) {
    program_.outside = static_cast<std::int32_t>(program_.operations.size());
    begin("outside");
    read(std::vector<Given>(outputs.begin(), outputs.end()));
    std::vector<Slot> tangents;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      program_.outputs.push_back(outputs[i].id);
      if (!differentiable[i]) continue;
      tangents.push_back(new_value(slots_[at(outputs[i].id)] + "'"));
      program_.tangents.push_back(tangents.back().id);
    }
    program_.differentiable = std::move(differentiable);
    return tangents;
  }
  Slot outside(Slot output) { return outside({output}, {true}).front(); }

  void gradient(Slot input, Slot gradient) {
    const auto found = std::ranges::find(program_.inputs, input.id) - program_.inputs.begin();
    program_.gradients[static_cast<std::size_t>(found)] = gradient.id;
  }

  Call& last_call() { return program_.calls.back(); }
  CallId last_call_id() const { return static_cast<CallId>(program_.calls.size()) - 1; }
  Program& program() { return program_; }
  const Program& program() const { return program_; }

  // A call that makes the first result of the last op again.
  void renewal(const std::string& name, const char* torch_op, std::vector<Given> arguments) {
    const CallId id = last_call_id();
    const Slot made{program_.calls[at(id)].results.front().slots.front()};
    const CallId renewal = add_call(name, torch_op, std::move(arguments), {made});
    program_.calls[at(id)].renewal = renewal;
  }

  // "mul -mul": computes by op, frees by value.
  Schedule schedule(const std::string& plan, const Ways& ways = {}) const {
    std::vector<std::int32_t> steps;
    std::istringstream words(plan);
    for (std::string word; words >> word;) {
      steps.push_back(word[0] == '-' ? ~find(values_, word.substr(1)) : find(operations_, word));
    }
    return make_schedule(std::make_shared<Program>(program_), steps, ways);
  }

  // Calls by name, "-slot" where it is cleared, "a>b" where b begins as a itself, "a+>b" as its
  // copy, "(a" and "a)" where a is put aside and back; "|" after forward and "/w" after a stage
  // that hands over the gradient of w.
  std::string words(const Schedule& schedule) const {
    std::string text;
    const auto say = [&](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
    const auto slot = [&](std::int32_t id) { return slots_[at(id)]; };
    std::size_t stage = 0;
    for (std::size_t i = 0; i <= schedule.instructions.size(); ++i) {
      if (i == schedule.forward_end) say("|");
      for (; stage < schedule.stages.size() && schedule.stages[stage].end == i; ++stage) {
        for (const std::int32_t input : schedule.stages[stage].inputs) {
          say("/" + slot(program_.inputs[at(input)]));
        }
      }
      if (i == schedule.instructions.size()) break;
      const Instruction& it = schedule.instructions[i];
      switch (it.kind) {
        case Instruction::Kind::call: say(program_.calls[at(it.call)].where); break;
        case Instruction::Kind::take: say(slot(it.slot) + ">" + slot(it.target)); break;
        case Instruction::Kind::copy: say(slot(it.slot) + "+>" + slot(it.target)); break;
        case Instruction::Kind::clear: say("-" + slot(it.slot)); break;
        case Instruction::Kind::stash: say("(" + slot(it.slot)); break;
        case Instruction::Kind::unstash: say(slot(it.slot) + ")"); break;
      }
    }
    return text;
  }
  std::string words(const std::vector<SlotId>& all) const {
    std::string text;
    for (const SlotId id : all) text += (text.empty() ? "" : " ") + slots_[at(id)];
    return text;
  }

 private:
  void begin(const std::string& name) {
    operations_.push_back(name);
    program_.operations.emplace_back();
  }

  void read(const std::vector<Given>& arguments) {
    for (const Given& argument : arguments) {
      for (const SlotId slot : argument.slots) {
        if (slot == kNone || program_.is_resident(slot)) continue;
        program_.operations.back().read.push_back(program_.value_of_slot[at(slot)]);
      }
    }
  }

  Slot new_slot(const std::string& name, std::int32_t value) {
    slots_.push_back(name);
    program_.view_of_slot.push_back(kNone);
    program_.value_of_slot.push_back(value);
    return {static_cast<SlotId>(slots_.size()) - 1};
  }

  Slot new_value(const std::string& name) {
    const auto value = static_cast<std::int32_t>(values_.size());
    const Slot slot = new_slot(name, value);
    values_.push_back(name);
    program_.slots_of_value.push_back({slot.id});
    program_.operations.back().made.push_back(value);
    return slot;
  }

  CallId add_call(const std::string& name, const std::string& torch_op,
                  std::vector<Given> arguments, const std::vector<Slot>& results) {
    const std::size_t dot = torch_op.find('.');
    const std::string overload = dot == std::string::npos ? "" : torch_op.substr(dot + 1);
    Call call(c10::Dispatcher::singleton().findSchemaOrThrow(torch_op.substr(0, dot).c_str(),
                                                             overload.c_str()));
    for (Given& argument : arguments) call.arguments.push_back(std::move(argument));
    for (const Slot result : results) call.results.push_back({false, {result.id}});
    call.where = name;
    program_.calls.push_back(std::move(call));
    return last_call_id();
  }

  static std::int32_t find(const std::vector<std::string>& names, const std::string& name) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) throw std::logic_error("no " + name);
    return static_cast<std::int32_t>(found - names.begin());
  }

  Program program_;
  std::vector<std::string> slots_, values_, operations_;  // names
};

constexpr auto kMul = "aten::mul.Tensor";

// y = relu(xw), and the gradient of w: y' where y > 0, times x.
struct ReluOfProduct {
  ProgramBuilder build;
  Slot x = build.input("x");
  Slot w = build.input("w");
  Slot h = build.op("h", kMul, {x, w});
  Slot y = build.op("y", "aten::relu", {h});
  Slot dy = build.outside(y);
  Slot dh = build.op("h'", "aten::threshold_backward", {dy, y, 0});
  Slot dw = build.op("w'", kMul, {dh, x});

  ReluOfProduct() { build.gradient(w, dw); }
};

// Layers y = x·a·b, whose gradients are made b first.
struct TwoLayers {
  ProgramBuilder build;
  Slot x = build.input("x");
  Slot a = build.input("a");
  Slot b = build.input("b");
  Slot h = build.op("h", kMul, {x, a});
  Slot y = build.op("y", kMul, {h, b});
  Slot dy = build.outside(y);
  Slot db = build.op("b'", kMul, {dy, h});
  Slot dh = build.op("h'", kMul, {dy, b});
  Slot da = build.op("a'", kMul, {dh, x});

  TwoLayers() {
    build.gradient(a, da);
    build.gradient(b, db);
  }
};

}  // namespace reprise::runtime
