// SPDX-License-Identifier: Apache-2.0
#include "runtime/graphed_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace reprise::runtime {
namespace {

bool all_stay(const Schedule& schedule, const std::vector<bool>& stays) {
  return std::ranges::all_of(schedule.stages, [&](const Stage& stage) {
    return std::ranges::all_of(stage.inputs, [&](std::int32_t input) { return stays[at(input)]; });
  });
}

// Inputs that calls of forward change for good.
std::vector<std::int32_t> changed_inputs(const Schedule& schedule) {
  const Program& program = *schedule.program;
  std::vector<std::int32_t> changed;
  for (std::size_t i = 0; i < schedule.forward_end; ++i) {
    if (schedule.instructions[i].kind != Instruction::Kind::call) continue;
    const Call& call = program.calls[at(schedule.instructions[i].call)];
    std::vector<std::int32_t> written = call.bumped;
    written.insert(written.end(), call.scratch.begin(), call.scratch.end());
    for (const std::int32_t argument : written) {
      for (const SlotId slot : call.arguments[at(argument)].slots) {
        if (slot == kNone) continue;
        const auto found = std::ranges::find(program.inputs, source_of(program, slot));
        if (found == program.inputs.end()) continue;
        const auto input = static_cast<std::int32_t>(found - program.inputs.begin());
        if (std::ranges::find(changed, input) == changed.end()) changed.push_back(input);
      }
    }
  }
  return changed;
}

// Each element once: dimensions along which all elements are one are cut short.
at::Tensor without_repeats(at::Tensor tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  }
  return tensor;
}

void copy_into(const at::Tensor& to, const at::Tensor& from) {
  const c10::AutoGradMode no_grad(false);
  without_repeats(to).copy_(without_repeats(from.detach()), /*non_blocking=*/true);
}

}  // namespace

std::shared_ptr<const std::uint64_t> GraphMemory::begin_step() {
  auto step = std::make_shared<const std::uint64_t>(++steps_);
  step_ = step;
  return step;
}

GraphedStep::GraphedStep(std::shared_ptr<GraphMemory> memory,
                         std::shared_ptr<const Schedule> schedule, std::vector<at::Tensor> copies,
                         std::vector<bool> stays, std::vector<std::vector<std::int64_t>> strides)
    : memory_(std::move(memory)),
      schedule_(std::move(schedule)),
      copies_(std::move(copies)),
      stays_(std::move(stays)),
      strides_(std::move(strides)),
      changed_(changed_inputs(*schedule_)),
      is_one_backward_(all_stay(*schedule_, stays_)) {
  for (const SlotId slot : schedule_->program->outputs) {
    TORCH_CHECK(slot == kNone || !schedule_->program->is_resident(slot),
                "an output is an input or a constant");
  }
  for (const std::int32_t input : changed_) {
    TORCH_CHECK(!copies_[at(input)].defined(),
                "forward changes an input that lies elsewhere at each step");
  }
}

std::vector<std::int32_t> GraphedStep::moved(const std::vector<at::Tensor>& inputs) const {
  std::vector<std::int32_t> moved;
  for (std::size_t i = 0; i < read_at_.size(); ++i) {
    if (!copies_[i].defined() && inputs[i].data_ptr() != read_at_[i]) {
      moved.push_back(static_cast<std::int32_t>(i));
    }
  }
  return moved;
}

std::vector<at::Tensor> GraphedStep::run_forward(std::uint64_t step,
                                                 const std::vector<at::Tensor>& inputs) {
  step_ = step;
  memory_->lent.move_out(step_);
  if (!forward_) record_forward(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (copies_[i].defined()) copy_into(copies_[i], inputs[i]);
  }
  began_ = random_place(memory_->pool->device());
  forward_->replay(began_);
  for (const std::int32_t input : changed_) {
    inputs[at(input)].unsafeGetTensorImpl()->bump_version();
  }
  std::vector<at::Tensor> outputs;
  Lent storages;
  for (const Place& place : outputs_) outputs.push_back(lend(place, true, storages));
  return outputs;
}

void GraphedStep::record_forward(const std::vector<at::Tensor>& inputs) {
  const Program& program = *schedule_->program;
  auto graph = std::make_unique<CudaGraph>(memory_->pool,
                                           random_turns(*schedule_, 0, schedule_->forward_end));
  try {
    graph->record([&] {
      frame_.emplace(program);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        frame_->slots[at(program.inputs[i])] = copies_[i].defined() ? copies_[i] : inputs[i];
      }
      run(*schedule_, 0, schedule_->forward_end, *frame_, nullptr, nullptr);
      std::size_t tangent = 0;
      for (std::size_t i = 0; i < program.outputs.size(); ++i) {
        if (!program.differentiable[i]) continue;
        const SlotId slot = program.tangents[tangent];
        at::Tensor place;
        if (slot != kNone) {
          const at::Tensor& like = frame_->slots[at(program.outputs[i])];
          place = at::empty_strided(like.sizes(), strides_[tangent], like.options());
          frame_->slots[at(slot)] = place;
        }
        tangents_.push_back(place_of(place));
        ++tangent;
      }
    });
  } catch (...) {
    frame_.reset();
    tangents_.clear();
    throw;
  }
  for (const at::Tensor& input : inputs) read_at_.push_back(input.data_ptr());
  for (const SlotId slot : program.outputs) {
    const at::Tensor output = slot == kNone ? at::Tensor() : frame_->slots[at(slot)];
    outputs_.push_back(place_of(output));
    held_.push_back(output);
  }
  for (const SlotId slot : schedule_->unneeded) frame_->slots[at(slot)].reset();
  forward_ = std::move(graph);
}

void GraphedStep::begin_backward(std::vector<at::Tensor>& tangents) {
  memory_->lent.move_out(step_);
  Lent storages;
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents_[i].is_tensor) continue;
    copy_into(lend(tangents_[i], true, storages), tangents[i]);
    tangents[i].reset();
  }
  if (!backward_.empty()) return;
  try {
    record_backward();
  } catch (...) {
    backward_.clear();
    for (std::size_t i = 0; i < tangents.size(); ++i) {
      if (tangents_[i].is_tensor) tangents[i] = lend(tangents_[i], true, storages).clone();
    }
    throw;
  }
}

void GraphedStep::record_backward() {
  TORCH_CHECK(frame_.has_value(), "backward can't be recorded: its forward was not");
  const std::size_t stages = schedule_->stages.size();
  try {
    if (is_one_backward_) {
      backward_.push_back(record_stages(0, stages));
    } else {
      for (std::size_t i = 0; i < stages; ++i) backward_.push_back(record_stages(i, i + 1));
    }
  } catch (...) {
    frame_.reset();
    held_.clear();
    throw;
  }
  frame_.reset();
  held_.clear();
}

std::unique_ptr<CudaGraph> GraphedStep::record_stages(std::size_t begin, std::size_t end) {
  const Program& program = *schedule_->program;
  const std::vector<Stage>& stages = schedule_->stages;
  const std::size_t first = begin == 0 ? schedule_->forward_end : stages[begin - 1].end;
  const std::size_t past = stages[end - 1].end;
  auto graph = std::make_unique<CudaGraph>(memory_->pool, random_turns(*schedule_, first, past));
  graph->record([&] { run(*schedule_, first, past, *frame_, nullptr, nullptr); });
  for (std::size_t i = begin; i < end; ++i) {
    for (const std::int32_t input : stages[i].inputs) {
      const at::Tensor& gradient = frame_->slots[at(program.gradients[at(input)])];
      gradients_[input] = place_of(gradient);
      if (stays_[at(input)]) held_.push_back(gradient);
    }
  }
  for (std::size_t i = begin; i < end; ++i) {
    for (const SlotId slot : stages[i].cleared) frame_->slots[at(slot)].reset();
  }
  return graph;
}

void GraphedStep::run_stage(std::size_t index) {
  if (is_one_backward_ && index > 0) return;
  memory_->lent.move_out(step_);
  backward_[index]->replay(began_);
}

std::vector<at::Tensor> GraphedStep::gradients(const std::vector<std::int32_t>& inputs) {
  const std::vector<SlotId>& slots = schedule_->program->gradients;
  std::map<SlotId, at::Tensor> lent;  // one tensor a slot: two that get it share it
  Lent storages;
  std::vector<at::Tensor> gradients;
  for (const std::int32_t input : inputs) {
    const SlotId slot = slots[at(input)];
    if (slot != kNone && !lent.contains(slot)) {
      lent[slot] = lend(gradients_.at(input), stays_[at(input)], storages);
    }
    gradients.push_back(slot == kNone ? at::Tensor() : lent.at(slot));
  }
  return gradients;
}

GraphedStep::Place GraphedStep::place_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true,
          tensor.storage().mutable_data(),
          tensor.storage().nbytes(),
          tensor.storage_offset(),
          tensor.sizes().vec(),
          tensor.strides().vec(),
          tensor.options()};
}

at::Tensor GraphedStep::lend(const Place& place, bool stays, Lent& storages) {
  if (!place.is_tensor) return {};
  const c10::AutoGradMode no_grad(false);
  c10::Storage& storage = storages[place.data];
  if (!storage) {
    storage = memory_->lent.lend(place.data, place.bytes, memory_->pool->device(), memory_->pool,
                                 step_, stays);
  }
  return at::empty({0}, place.options).set_(storage, place.offset, place.sizes, place.strides);
}

}  // namespace reprise::runtime
