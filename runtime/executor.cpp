// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "runtime/cuda_graph.h"
#include "runtime/halves.h"
#include "runtime/parts.h"
#include "runtime/recorder.h"
#include "runtime/residents.h"

namespace reprise::runtime {
namespace {

// A view by sizes and strides that begins so many elements after `tensor` does.
at::Tensor window(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                  std::int64_t offset) {
  return at::as_strided(tensor, sizes, strides, tensor.storage_offset() + offset);
}

TORCH_LIBRARY_FRAGMENT(reprise, library) {
  library.def("window(Tensor(a) tensor, int[] sizes, int[] strides, int offset) -> Tensor(a)");
}

TORCH_LIBRARY_IMPL(reprise, CompositeExplicitAutograd, library) { library.impl("window", &window); }

// A copy of its own with the same sizes and strides.
at::Tensor copy_of(const at::Tensor& tensor) {
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

c10::IValue copy_of(const c10::IValue& argument) {
  if (argument.isTensorList()) {
    c10::List<at::Tensor> copies;
    for (const at::Tensor& tensor : argument.toTensorVector()) copies.push_back(copy_of(tensor));
    return copies;
  }
  const bool is_there = argument.isTensor() && argument.toTensor().defined();
  return is_there ? c10::IValue(copy_of(argument.toTensor())) : argument;
}

// Something to write to in its place.
c10::IValue unfilled_like(const c10::IValue& argument) {
  const bool is_there = argument.isTensor() && argument.toTensor().defined();
  return is_there ? c10::IValue(at::empty_like(argument.toTensor())) : argument;
}

template <class Element>
c10::List<Element> list_of(const std::vector<SlotId>& slots, const Frame& frame) {
  c10::List<Element> list;
  list.reserve(slots.size());
  for (const SlotId slot : slots) {
    list.push_back(slot == kNone ? Element() : Element(frame.slots[at(slot)]));
  }
  return list;
}

c10::IValue argument_of(const Argument& argument, const Frame& frame) {
  switch (argument.kind) {
    case Argument::Kind::constant: return argument.constant;
    case Argument::Kind::tensor:
      return argument.slots[0] == kNone ? c10::IValue(at::Tensor())
                                        : c10::IValue(frame.slots[at(argument.slots[0])]);
    case Argument::Kind::tensors: return list_of<at::Tensor>(argument.slots, frame);
    case Argument::Kind::optional_tensors:
      return list_of<std::optional<at::Tensor>>(argument.slots, frame);
  }
  return {};
}

void store(const Result& result, c10::IValue returned, Frame& frame) {
  if (!result.is_list) {
    if (result.slots[0] != kNone) frame.slots[at(result.slots[0])] = std::move(returned).toTensor();
    return;
  }
  const c10::List<at::Tensor> list = returned.toTensorList();
  for (std::size_t i = 0; i < result.slots.size(); ++i) {
    if (result.slots[i] != kNone) frame.slots[at(result.slots[i])] = list.get(i);
  }
}

// A view of an input counts changes together with it, as views do above us.
void share_versions(const Program& program, const Call& call, Frame& frame) {
  for (const Result& result : call.results) {
    for (const SlotId slot : result.slots) {
      if (slot == kNone || !program.is_resident(slot)) continue;
      const at::Tensor& source = frame.slots[at(viewed_by(call))];
      frame.slots[at(slot)].unsafeGetTensorImpl()->set_version_counter(
          source.unsafeGetTensorImpl()->version_counter());
    }
  }
}

bool look_alike(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

// Would eager's result look like the last argument, which is to be written over? It does where all
// arguments look like that, numbers aside.
bool can_write_over(const torch::jit::Stack& stack) {
  return std::ranges::all_of(stack, [&](const c10::IValue& argument) {
    return !argument.isTensor() || argument.toTensor().dim() == 0 ||
           look_alike(argument.toTensor(), stack.back().toTensor());
  });
}

void call_plainly(const Program& program, const Call& call, Frame& frame) {
  frame.stack.pop_back();
  call.plain->callBoxed(frame.stack);
  const SlotId slot = call.arguments.back().slots[0];
  at::Tensor result = std::move(frame.stack.back()).toTensor();
  if (program.view_of_slot[at(slot)] == kNone) {
    frame.slots[at(slot)] = std::move(result);
  } else {
    frame.slots[at(slot)].copy_(result);
  }
  frame.stack.clear();
}

void call_op(const Program& program, const Instruction& instruction, Frame& frame) {
  const Call& call = program.calls[at(instruction.call)];
  torch::jit::Stack& stack = frame.stack;
  stack.clear();
  for (const Argument& argument : call.arguments) stack.push_back(argument_of(argument, frame));
  if (instruction.again) {  // writes elsewhere
    for (const std::int32_t index : call.bumped) stack[at(index)] = copy_of(stack[at(index)]);
    for (const std::int32_t index : call.scratch) {
      stack[at(index)] = unfilled_like(stack[at(index)]);
    }
  }
  if (call.plain && !can_write_over(stack)) {
    call_plainly(program, call, frame);
    return;
  }
  if (instruction.parts > 1) {
    run_in_parts(call.op, stack, instruction.parts);
  } else if (instruction.at_once) {
    run_halves_at_once(call.op, stack, call.device);
  } else {
    call.op.callBoxed(stack);
  }
  if (!instruction.again) {
    for (const std::int32_t index : call.bumped) {  // as the kernels above us would have
      for (const SlotId slot : call.arguments[at(index)].slots) {
        frame.slots[at(slot)].unsafeGetTensorImpl()->bump_version();
      }
    }
  }
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    store(call.results[i], std::move(stack[i]), frame);
  }
  share_versions(program, call, frame);
  stack.clear();  // holds nothing over the next step
}

// Does the call change an input of which the frame has a copy?
bool writes_to_remembered(const Program& program, const Call& call) {
  return std::ranges::any_of(written_by(program, call),
                             [&](SlotId slot) { return contains(program.remembered, slot); });
}

bool makes_nothing(const Call& call) {
  return std::ranges::all_of(call.results, [](const Result& result) {
    return std::ranges::all_of(result.slots, [](SlotId slot) { return slot == kNone; });
  });
}

void call_with_random_state(const Program& program, const Instruction& instruction, Frame& frame) {
  const Call& call = program.calls[at(instruction.call)];
  const auto work = [&] { call_op(program, instruction, frame); };
  if (instruction.replay_random) {
    const CallId drawn_by = call.replays == kNone ? instruction.call : call.replays;
    frame.random[at(drawn_by)].repeat(call.device, work);
  } else if (instruction.save_random) {
    frame.random[at(instruction.call)].make(call.device, work);
  } else {
    work();
  }
}

}  // namespace

Frame::Frame(const Program& program)
    : slots(program.view_of_slot.size()), random(program.calls.size()) {
  for (const auto& [slot, tensor] : program.constants) {
    slots[at(slot)] = contains(program.fresh, slot) ? tensor.clone() : tensor;
  }
}

void run_call(const Program& program, const Instruction& instruction, Frame& frame) {
  const Call& call = program.calls[at(instruction.call)];
  try {
    call_with_random_state(program, instruction, frame);
  } catch (c10::Error& error) {  // keeps its type: out of memory stays out of memory
    error.add_context("while Reprise ran " + call.where);
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string(error.what()) + "\nwhile Reprise ran " + call.where);
  }
}

void run(const Schedule& schedule, std::size_t begin, std::size_t end, Frame& frame,
         const Frame* kept, InstructionPeaks* peaks, bool repeated) {
  const BelowAutograd below;
  std::map<SlotId, at::Tensor> stash;
  const auto tensor = [&](SlotId id) -> at::Tensor& { return frame.slots[at(id)]; };
  for (std::size_t i = begin; i < end; ++i) {
    Instruction instruction = schedule.instructions[i];
    if (repeated && instruction.kind == Instruction::Kind::call) {
      const Call& call = schedule.program->calls[at(instruction.call)];
      if (!writes_to_remembered(*schedule.program, call)) {
        if (!call.bumped.empty() && makes_nothing(call)) continue;
        instruction.again = true;
      }
    }
    if (peaks != nullptr) {
      peaks->meter.restart();
      peaks->before.push_back(peaks->meter.peak());
    }
    const SlotId slot = instruction.slot;
    switch (instruction.kind) {
      case Instruction::Kind::call:
        run_call(*schedule.program, instruction, frame);
        if (schedule.gives_back || recorder() != nullptr) give_back_workspaces();
        break;
      case Instruction::Kind::clear: tensor(slot).reset(); break;
      case Instruction::Kind::take: {
        const bool is_kept = kept != nullptr && tensor(slot).is_same(kept->slots[at(slot)]);
        tensor(instruction.target) = is_kept ? copy_of(tensor(slot)) : std::move(tensor(slot));
        break;
      }
      case Instruction::Kind::copy: tensor(instruction.target) = copy_of(tensor(slot)); break;
      case Instruction::Kind::stash:
        stash[slot] = std::move(tensor(slot));
        tensor(slot).reset();
        break;
      case Instruction::Kind::unstash:
        tensor(slot) = std::move(stash.extract(slot).mapped());
        break;
    }
    if (peaks != nullptr) peaks->peaks.push_back(peaks->meter.peak());
  }
}

}  // namespace reprise::runtime
