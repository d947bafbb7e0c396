// SPDX-License-Identifier: Apache-2.0
#include "runtime/begun_step.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <utility>

#include "runtime/graph_memory.h"
#include "runtime/look.h"
#include "runtime/residents.h"
#include "runtime/sharing.h"

namespace reprise::runtime {
namespace {

using torch::autograd::variable_list;

bool autocast_is_on() {
  return at::autocast::is_autocast_enabled(at::kCPU) ||
         at::autocast::is_autocast_enabled(at::kCUDA);
}

// The strides that matter: along a dimension of one element any will do.
std::vector<std::int64_t> strides_of(const at::Tensor& tensor) {
  std::vector<std::int64_t> strides = tensor.strides().vec();
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (tensor.sizes()[i] == 1) strides[i] = 1;
  }
  return strides;
}

bool is_batched(const at::Tensor& tangent) {
  constexpr c10::DispatchKeySet batched(
      {c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched});
  return tangent.defined() && tangent.key_set().has_any(batched);
}

// The same numbers, and changes counted together.
at::Tensor alias_of(const at::Tensor& tensor) {
  return at::Tensor(tensor.getIntrusivePtr()->shallow_copy_and_detach(
      tensor.unsafeGetTensorImpl()->version_counter(), /*allow_tensor_metadata_change=*/true));
}

// A view that autograd lets nobody change in place.
at::Tensor fixed_view_of(const at::Tensor& base, const at::Tensor& tensor) {
  namespace autograd = torch::autograd;
  return autograd::make_variable_differentiable_view(
      alias_of(tensor), autograd::ViewInfo(base, /*view_fn=*/nullptr, /*rev_view_fn=*/nullptr),
      /*forward_info=*/std::nullopt, /*shared_view_info=*/false,
      autograd::CreationMeta::IN_CUSTOM_FUNCTION);
}

bool any_overlap(const std::vector<at::Tensor>& tensors, const std::vector<std::size_t>& indices) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!are_apart(tensors[indices[i]], tensors[indices[j]])) return true;
    }
  }
  return false;
}

}  // namespace

Guard::Guard(const at::Tensor& tensor)
    : counter_(tensor.unsafeGetTensorImpl()->version_counter()),
      version_(counter_.enabled() ? counter_.current_version() : 0) {}

BegunStep::BegunStep(std::shared_ptr<const Prepared> prepared, std::vector<at::Tensor> inputs)
    : prepared_(std::move(prepared)), inputs_(std::move(inputs)) {}

BegunStep::~BegunStep() {
  try {
    finish(false);
  } catch (...) {  // who listens is not told: there is nobody to throw to
  }
}

std::vector<at::Tensor> BegunStep::run_forward() {
  const Schedule& schedule = *prepared_->schedule;
  remember();
  if (prepared_->measured) meter_.start(*prepared_->measured, prepared_->by_instruction);
  std::vector<at::Tensor> outputs = prepared_->graphed ? replay_forward() : call_forward();
  tie_together(outputs);
  for (const at::Tensor& input : inputs_) input_guards_.emplace_back(input);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (contains(schedule.guarded_outputs, program().outputs[i])) {
      output_guards_.emplace_back(outputs[i]);
    }
  }
  meter_.leave_forward();
  return outputs;
}

std::vector<std::int32_t> BegunStep::inputs_of(std::size_t stage) const {
  std::vector<std::int32_t> all = prepared_->schedule->stages[stage].inputs;
  if (stage + 1 < prepared_->schedule->stages.size()) return all;
  for (std::size_t i = 0; i < program().inputs.size(); ++i) {
    if (program().gradients[i] == kNone && program().reached[i]) {
      all.push_back(static_cast<std::int32_t>(i));
    }
  }
  return all;
}

std::vector<at::Tensor> BegunStep::run_stage(std::size_t index, variable_list&& tangents) {
  TORCH_CHECK(!c10::GradMode::is_enabled(),
              "Reprise does not support double backward (create_graph=True): take gradients of "
              "gradients from the plain module");
  TORCH_CHECK(std::none_of(tangents.begin(), tangents.end(), is_batched),
              "Reprise does not run backward for several gradients at once (is_grads_batched=True, "
              "vectorize=True): take them one by one, or of the plain module");
  if (index == 0) begin(std::move(tangents));
  TORCH_CHECK(running_, "backward of a Reprise step began in its middle");
  std::vector<at::Tensor> gradients =
      replayed_ && !other_ ? replay_stage(index) : call_stage(index);
  if (index + 1 == prepared_->schedule->stages.size()) end();
  return gradients;
}

void BegunStep::shed() {
  if (running_ || (!kept_ && !replayed_)) return;
  kept_.reset();
  replayed_.reset();
  output_guards_.clear();
  is_shed_ = true;
}

void BegunStep::release() {
  kept_.reset();
  is_shed_ = false;
  if (running_) {  // stages are left: graphs read inputs where they lie, a tighter schedule anew
    if (!replayed_ && !prepared_->tighter) inputs_.clear();
    return;
  }
  replayed_.reset();
  inputs_.clear();
  working_.reset();
}

void BegunStep::remember() {
  for (const c10::Device device : prepared_->schedule->random) {
    random_.emplace_back(device, random_state(device));
  }
  Tensors changed;
  for (const SlotId slot : program().remembered) {
    const auto input = std::ranges::find(program().inputs, slot) - program().inputs.begin();
    changed[slot] = inputs_[static_cast<std::size_t>(input)];
  }
  remembered_ = copies_of(changed);
}

void BegunStep::tie_together(std::vector<at::Tensor>& outputs) const {
  std::map<const c10::StorageImpl*, std::vector<std::size_t>> sharing;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) {
      sharing[outputs[i].storage().unsafeGetStorageImpl()].push_back(i);
    }
  }
  for (const auto& [storage, indices] : sharing) {
    const bool is_of_input = program().is_resident(program().outputs[indices.front()]);
    if (indices.size() == 1 || is_of_input) continue;  // an optimizer may change inputs
    const at::Tensor base = alias_of(outputs[indices.front()]);
    const bool are_fixed = any_overlap(outputs, indices);
    for (const std::size_t i : indices) {
      if (are_fixed && program().differentiable[i]) {
        outputs[i] = fixed_view_of(base, outputs[i]);
      } else {
        outputs[i].unsafeGetTensorImpl()->set_version_counter(
            base.unsafeGetTensorImpl()->version_counter());
      }
    }
  }
}

std::vector<at::Tensor> BegunStep::call_forward() {
  const Schedule& schedule = *prepared_->schedule;
  Frame frame(program());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    frame.slots[at(program().inputs[i])] = inputs_[i];
  }
  run(schedule, 0, schedule.forward_end, frame, nullptr, meter_.instruction_peaks());
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> outputs;
  for (const SlotId slot : program().outputs) {
    outputs.push_back(slot == kNone ? at::Tensor() : frame.slots[at(slot)].detach());
  }
  for (const SlotId slot : schedule.unneeded) frame.slots[at(slot)].reset();
  kept_ = std::move(frame);
  return outputs;
}

std::vector<at::Tensor> BegunStep::replay_forward() {
  replayed_ = prepared_->graphed->memory().begin_step();
  return prepared_->graphed->run_forward(inputs_);
}

bool BegunStep::are_changed(const std::vector<std::int32_t>& inputs) const {
  return std::ranges::any_of(
      inputs, [&](std::int32_t input) { return input_guards_[at(input)].is_changed(); });
}

void BegunStep::begin(variable_list&& tangents) {
  TORCH_CHECK(kept_ || is_shed_ || (replayed_ && !is_spent_),
              "backward ran a second time through a step of Reprise's whose values are freed: "
              "say retain_graph=True the first time");
  TORCH_CHECK(!are_changed(prepared_->schedule->read_by_backward) &&
                  std::ranges::none_of(output_guards_, &Guard::is_changed),
              "an input, parameter or output that backward needs was modified by an inplace "
              "operation between forward and backward");
  const bool stays = torch::autograd::get_current_graph_task_keep_graph();
  if (stays) {
    working_ = kept_;
  } else {
    working_ = std::exchange(kept_, std::nullopt);
  }
  running_ = true;
  other_.reset();
  had_gradient_.clear();
  for (const at::Tensor& input : inputs_) {
    had_gradient_.push_back(input.is_leaf() && input.grad().defined());
  }
  meter_.begin_backward();

  BackwardCase actual{{}, autocast_is_on()};
  for (const at::Tensor& tangent : tangents) {
    actual.tangents.push_back(tangent.defined() ? Tangent(strides_of(tangent)) : std::nullopt);
  }
  if (prepared_->tighter) remember_small(tangents);
  const bool is_another = actual != prepared_->expected;
  if (replayed_ && (stays || is_another)) {
    prepared_->not_graphed(stays ? "backward keeps its graph (retain_graph=True)"
                                 : "backward is another one than before");
  }
  is_spent_ = !stays;
  if (is_shed_ || is_another || (replayed_ && stays)) {
    working_.reset();
    run_other(prepared_->other(actual, is_shed_), std::move(tangents));
  } else if (replayed_) {
    begin_replay(std::move(tangents));
  } else {
    place(std::move(tangents), program());
  }
}

std::vector<at::Tensor> BegunStep::call_stage(std::size_t index) {
  if (!other_) run_planned(index);  // or another one: where memory runs out
  const Program& ran = other_ ? *other_->program : program();
  std::vector<at::Tensor> gradients;
  for (const std::int32_t input : inputs_of(index)) {
    const SlotId slot = ran.gradients[at(input)];
    gradients.push_back(slot == kNone ? at::Tensor() : working_->slots[at(slot)]);
  }
  if (!other_) {
    for (const SlotId slot : prepared_->schedule->stages[index].cleared) {
      working_->slots[at(slot)].reset();
    }
  }
  return gradients;
}

// Where graphs won't do for this backward, all runs again as it is.
void BegunStep::begin_replay(variable_list&& tangents) {
  try {
    prepared_->graphed->begin_backward(inputs_, tangents);
  } catch (const c10::Error& error) {
    prepared_->not_graphed(error.what_without_backtrace());
    run_other(prepared_->schedule, std::move(tangents));
  }
}

std::vector<at::Tensor> BegunStep::replay_stage(std::size_t index) {
  prepared_->graphed->run_stage(index);
  return prepared_->graphed->gradients(inputs_of(index));
}

void BegunStep::run_planned(std::size_t index) {
  const Schedule& schedule = *prepared_->schedule;
  const Stage& stage = schedule.stages[index];
  try {
    run(schedule, stage.begin, stage.end, *working_, kept(), meter_.instruction_peaks());
  } catch (const c10::OutOfMemoryError&) {
    if (!prepared_->tighter || are_changed(schedule.read_by_forward)) throw;
    const std::optional<variable_list> tangents = tangents_left();
    if (!tangents) throw;
    run_tighter(*tangents);
  }
}

void BegunStep::remember_small(const variable_list& tangents) {
  constexpr std::size_t kSmall = 1 << 12;
  small_tangents_.clear();
  for (const at::Tensor& tangent : tangents) {
    const bool is_small = tangent.defined() && tangent.nbytes() <= kSmall;
    small_tangents_.push_back(is_small ? tangent.detach().clone() : at::Tensor());
  }
}

std::optional<variable_list> BegunStep::tangents_left() const {
  variable_list tangents = small_tangents_;
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    const SlotId slot = program().tangents[i];
    if (slot == kNone || tangents[i].defined()) continue;
    tangents[i] = working_->slots[at(slot)];
    if (!tangents[i].defined()) return std::nullopt;
  }
  return tangents;
}

void BegunStep::run_tighter(const variable_list& tangents) {
  while (true) {
    working_.reset();
    try {
      run_other(prepared_->tighter(), variable_list(tangents), /*undoing=*/true);
      return;
    } catch (const c10::OutOfMemoryError&) {
    }
  }
}

void BegunStep::place(variable_list&& tangents, const Program& ran) {
  for (std::size_t i = 0; i < ran.tangents.size(); ++i) {
    if (ran.tangents[i] != kNone) working_->slots[at(ran.tangents[i])] = std::move(tangents[i]);
  }
  tangents.clear();
}

void BegunStep::run_other(std::shared_ptr<const Schedule> schedule, variable_list&& tangents,
                          bool undoing) {
  TORCH_CHECK(!are_changed(schedule->read_by_forward),
              "forward has to run again for this backward, but an input or parameter that it reads "
              "was modified by an inplace operation in between");
  other_ = std::move(schedule);
  working_.emplace(*other_->program);
  const Tensors before = copies_of(remembered_);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const auto found = before.find(program().inputs[i]);
    working_->slots[at(other_->program->inputs[i])] =
        found == before.end() ? inputs_[i] : found->second;
  }
  with_random_states(
      random_, [&] { run(*other_, 0, other_->forward_end, *working_, nullptr, nullptr, true); });
  put_in_place(before, undoing);
  place(std::move(tangents), *other_->program);
  run(*other_, other_->forward_end, other_->instructions.size(), *working_, nullptr, nullptr);
}

void BegunStep::put_in_place(const Tensors& copies, bool undoing) {
  const std::vector<std::int32_t> changed = changed_by_backward(*other_);
  std::map<const c10::StorageImpl*, at::Tensor> inputs;  // by the storage of their copies
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const auto copy = copies.find(program().inputs[i]);
    if (copy == copies.end() || !contains(changed, static_cast<std::int32_t>(i))) continue;
    inputs.emplace(copy->second.storage().unsafeGetStorageImpl(), inputs_[i]);
    if (undoing) {
      const c10::AutoGradMode no_grad(false);
      inputs_[i].detach().copy_(copy->second);
    }
    working_->slots[at(other_->program->inputs[i])] = inputs_[i];
  }
  for (at::Tensor& tensor : working_->slots) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const auto input = inputs.find(tensor.storage().unsafeGetStorageImpl());
    if (input == inputs.end()) continue;
    tensor = Look::of(tensor).at(input->second.storage());
    tensor.unsafeGetTensorImpl()->set_version_counter(
        input->second.unsafeGetTensorImpl()->version_counter());
  }
}

void BegunStep::end() {
  const bool whole = !other_ && !kept_;
  if (!other_) replayed_.reset();
  working_.reset();
  other_.reset();
  running_ = false;
  finish(whole);
}

void BegunStep::finish(bool whole) {
  if (told_ || !prepared_->finished) return;
  told_ = true;
  Taken taken = meter_.finish(whole);
  taken.had_gradient = std::move(had_gradient_);
  prepared_->finished(taken);
}

BegunStep::Tensors BegunStep::copies_of(const Tensors& tensors) {
  std::map<const c10::StorageImpl*, at::Tensor> storages;
  Tensors copies;
  for (const auto& [slot, tensor] : tensors) {
    at::Tensor& storage = storages[tensor.storage().unsafeGetStorageImpl()];
    if (!storage.defined()) storage = bytes_of(tensor.storage());
    copies[slot] = Look::of(tensor).at(storage.storage());
  }
  return copies;
}

}  // namespace reprise::runtime
