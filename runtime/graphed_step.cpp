// SPDX-License-Identifier: Apache-2.0
#include "runtime/graphed_step.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/copy_into.h"
#include "runtime/residents.h"

namespace reprise::runtime {
namespace {

constexpr std::size_t kSmall = std::size_t{128} << 10;  // bytes of a gradient

bool all_stay(const Schedule& schedule, const std::vector<bool>& stays) {
  return std::ranges::all_of(schedule.stages, [&](const Stage& stage) {
    return std::ranges::all_of(stage.inputs, [&](std::int32_t input) { return stays[at(input)]; });
  });
}

// Graphs make gradients in memory of their own, and for nothing else.
void check_gradients(const Program& program) {
  for (const SlotId gradient : program.gradients) {
    if (gradient == kNone) continue;
    const std::int32_t value = program.value_of_slot[at(gradient)];
    TORCH_CHECK(value != kNone, "a gradient is an input or a constant");
    for (const SlotId output : program.outputs) {
      TORCH_CHECK(output == kNone || program.value_of_slot[at(output)] != value,
                  "a gradient is an output");
    }
  }
}

bool has_hooks(const at::Tensor& leaf) {
  namespace impl = torch::autograd::impl;
  const auto sum = impl::try_get_grad_accumulator(leaf);
  return !impl::hooks(leaf).empty() || impl::post_acc_grad_hooks(leaf) ||
         (sum && !(sum->pre_hooks().empty() && sum->post_hooks().empty()));
}

}  // namespace

GraphedStep::GraphedStep(std::shared_ptr<GraphMemory> memory,
                         std::shared_ptr<const Schedule> schedule,
                         std::vector<std::optional<at::Tensor>> copies, std::vector<bool> stays,
                         std::vector<Tangent> expected, bool may_add, std::size_t most_waiting)
    : memory_(std::move(memory)),
      schedule_(std::move(schedule)),
      copies_(std::move(copies)),
      stays_(std::move(stays)),
      expected_(std::move(expected)),
      counted_(counted_inputs(*schedule_)),
      may_add_(may_add),
      most_waiting_(most_waiting) {
  for (const SlotId slot : schedule_->program->outputs) {
    TORCH_CHECK(slot == kNone || !schedule_->program->is_resident(slot),
                "forward returns an input or a constant");
  }
  for (const std::int32_t input : changed_inputs(*schedule_)) {
    TORCH_CHECK(!copies_[at(input)], "forward changes an input that lies elsewhere at each step");
  }
  check_gradients(*schedule_->program);
  for (std::size_t i = schedule_->forward_end; i < schedule_->instructions.size(); ++i) {
    TORCH_CHECK(!schedule_->instructions[i].save_random,
                "backward draws random numbers that this plan has to draw again");
  }
}

bool GraphedStep::end() {
  if (memory_->is_busy()) return false;
  forward_.reset();
  backward_.clear();
  memory_.reset();
  return true;
}

bool GraphedStep::has_moved(const std::vector<at::Tensor>& inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!copies_[i] && inputs[i].data_ptr() != read_at_[i]) return true;
  }
  return false;
}

std::vector<at::Tensor> GraphedStep::run_forward(const std::vector<at::Tensor>& inputs) {
  memory_->move_out();
  TORCH_CHECK(!has_moved(inputs), "an input lies elsewhere than where its graph was recorded");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (copies_[i]) copy_into(*copies_[i], inputs[i]);
  }
  began_ = random_place(memory_->pool->device());
  forward_->replay(began_);
  for (const std::int32_t input : counted_) {
    inputs[at(input)].unsafeGetTensorImpl()->bump_version();
  }
  std::vector<at::Tensor> outputs;
  Lent storages;
  for (const Place& place : outputs_) outputs.push_back(lend(place, true, storages));
  return outputs;
}

Taken GraphedStep::record(const std::vector<at::Tensor>& inputs) {
  StepMeter meter;
  meter.start(memory_->pool->device(), /*by_instruction=*/true);
  Draft draft{inputs, meter.instruction_peaks()};
  record_forward(draft);
  meter.leave_forward();
  meter.begin_backward();
  record_backward(draft);
  for (const at::Tensor& input : inputs) read_at_.push_back(input.data_ptr());
  return meter.finish(/*whole=*/true);
}

void GraphedStep::record_forward(Draft& draft) {
  const Program& program = *schedule_->program;
  const std::size_t end = schedule_->forward_end;
  forward_ = std::make_unique<CudaGraph>(memory_->pool, random_turns(*schedule_, 0, end));
  forward_->record([&] {
    draft.frame.emplace(program);
    for (std::size_t i = 0; i < draft.inputs.size(); ++i) {
      draft.frame->slots[at(program.inputs[i])] = copies_[i].value_or(draft.inputs[i]);
    }
    run(*schedule_, 0, end, *draft.frame, nullptr, draft.peaks);
    make_tangents(draft);
  });
  for (const SlotId slot : program.outputs) {
    draft.held.push_back(slot == kNone ? at::Tensor() : draft.frame->slots[at(slot)]);
    outputs_.push_back(place_of(draft.held.back()));
  }
  for (const SlotId slot : schedule_->unneeded) draft.frame->slots[at(slot)].reset();
}

// Room for what backward is handed.
void GraphedStep::make_tangents(Draft& draft) {
  const Program& program = *schedule_->program;
  for (std::size_t i = 0, tangent = 0; i < program.outputs.size(); ++i) {
    if (!program.differentiable[i]) continue;
    at::Tensor room;
    if (const SlotId slot = program.tangents[tangent]; slot != kNone) {
      const at::Tensor& like = draft.frame->slots[at(program.outputs[i])];
      room = at::empty_strided(like.sizes(), expected_[tangent].value(), like.options());
      draft.frame->slots[at(slot)] = room;
    }
    tangents_.push_back(place_of(room));
    ++tangent;
  }
}

void GraphedStep::record_backward(Draft& draft) {
  const std::size_t stages = schedule_->stages.size();
  is_one_backward_ = all_stay(*schedule_, stays_) || (may_add_ && can_add(draft.inputs));
  if (is_one_backward_) {
    backward_.push_back(record_stages(0, stages, draft));
  } else {
    for (std::size_t i = 0; i < stages; ++i) backward_.push_back(record_stages(i, i + 1, draft));
  }
}

std::unique_ptr<CudaGraph> GraphedStep::record_stages(std::size_t begin, std::size_t end,
                                                      Draft& draft) {
  const std::vector<Stage>& stages = schedule_->stages;
  auto graph = std::make_unique<CudaGraph>(
      memory_->pool, random_turns(*schedule_, stages[begin].begin, stages[end - 1].end));
  graph->record([&] {
    for (std::size_t i = begin; i < end; ++i) {
      run(*schedule_, stages[i].begin, stages[i].end, *draft.frame, nullptr, draft.peaks);
      leave_stage(stages[i], draft);
    }
    add_small(draft);
  });
  return graph;
}

// Notes where the stage's gradients lie; those that are not to stay are added where they belong, or
// are for the caller to take at once.
void GraphedStep::leave_stage(const Stage& stage, Draft& draft) {
  for (const std::int32_t input : stage.inputs) {
    const at::Tensor& gradient = draft.frame->slots[at(schedule_->program->gradients[at(input)])];
    if (is_one_backward_ && is_handed_over(at(input))) {
      add_to_sum(gradient, input, draft);
    } else {
      gradients_[input] = place_of(gradient);
      if (stays_[at(input)]) draft.held.push_back(gradient);
    }
  }
  for (const SlotId slot : stage.cleared) draft.frame->slots[at(slot)].reset();
}

// A large gradient is added at once. Small ones wait for more of them: a kernel for each would take
// longer than the work that it does.
void GraphedStep::add_to_sum(const at::Tensor& gradient, std::int32_t input, Draft& draft) {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor& sum = draft.inputs[at(input)].grad();
  sums_[input] = place_of(sum);
  const std::size_t bytes = gradient.storage().nbytes();
  if (bytes > std::min(kSmall, most_waiting_)) {
    sum.add_(gradient);
    return;
  }
  if (draft.small_bytes + bytes > most_waiting_) add_small(draft);
  draft.small_sums.push_back(sum);
  draft.small_gradients.push_back(gradient);
  draft.small_bytes += bytes;
}

void GraphedStep::add_small(Draft& draft) {
  const c10::AutoGradMode no_grad(false);
  if (!draft.small_sums.empty()) at::_foreach_add_(draft.small_sums, draft.small_gradients);
  draft.small_sums.clear();
  draft.small_gradients.clear();
  draft.small_bytes = 0;
}

// Would autograd add what it is handed to gradients that are there, and do nothing else?
bool GraphedStep::can_add(const std::vector<at::Tensor>& inputs) const {
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (asked != nullptr && !asked->empty()) return false;  // for certain gradients, into no sum
  std::set<const void*> sums;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_handed_over(i)) continue;
    const at::Tensor& sum = inputs[i].grad();
    if (!inputs[i].is_leaf() || !sum.defined() || has_hooks(inputs[i])) return false;
    if (sum.layout() != at::kStrided || !sum.is_non_overlapping_and_dense()) return false;
    if (!sums.insert(sum.data_ptr()).second) return false;
  }
  return true;
}

void GraphedStep::begin_backward(const std::vector<at::Tensor>& inputs,
                                 std::vector<at::Tensor>& tangents) {
  TORCH_CHECK(!has_moved(inputs), "an input was moved between forward and backward");
  TORCH_CHECK(sums_.empty() || (can_add(inputs) && are_at_their_sums(inputs)),
              "gradients are not added to the .grad tensors any more that the graph adds to");
  memory_->move_out();
  Lent storages;
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents_[i].is_tensor) continue;
    copy_into(lend(tangents_[i], true, storages), tangents[i]);
    tangents[i].reset();
  }
  for (const auto& [input, sum] : sums_) {
    inputs[at(input)].grad().unsafeGetTensorImpl()->bump_version();
  }
}

void GraphedStep::run_stage(std::size_t index) {
  if (is_one_backward_ && index > 0) return;
  memory_->move_out();
  backward_[index]->replay(began_);
}

bool GraphedStep::is_handed_over(std::size_t input) const {
  return !stays_[input] && schedule_->program->gradients[input] != kNone;
}

bool GraphedStep::are_at_their_sums(const std::vector<at::Tensor>& inputs) const {
  return std::ranges::all_of(
      sums_, [&](const auto& sum) { return place_of(inputs[at(sum.first)].grad()) == sum.second; });
}

std::vector<at::Tensor> GraphedStep::gradients(const std::vector<std::int32_t>& inputs) {
  const std::vector<SlotId>& slots = schedule_->program->gradients;
  std::map<SlotId, at::Tensor> lent;  // one tensor a slot: two that get it share it
  Lent storages;
  std::vector<at::Tensor> gradients;
  for (const std::int32_t input : inputs) {
    const SlotId slot = slots[at(input)];
    if (slot == kNone || sums_.contains(input)) {
      gradients.emplace_back();
      continue;
    }
    if (!lent.contains(slot)) {
      lent[slot] = lend(gradients_.at(input), stays_[at(input)], storages);
    }
    gradients.push_back(lent.at(slot));
  }
  return gradients;
}

GraphedStep::Place GraphedStep::place_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.storage().mutable_data(), tensor.storage().nbytes(), Look::of(tensor)};
}

at::Tensor GraphedStep::lend(const Place& place, bool stays, Lent& storages) {
  if (!place.is_tensor) return {};
  c10::Storage& storage = storages[place.data];
  if (!storage) storage = memory_->lend(place.data, place.bytes, stays);
  return place.look.at(storage);
}

}  // namespace reprise::runtime
