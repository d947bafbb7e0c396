// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/graphed_step.h"
#include "runtime/schedule.h"
#include "runtime/step_meter.h"

namespace reprise::runtime {

// What a captured backward was captured for.
struct BackwardCase {
  std::vector<Tangent> tangents;
  bool autocast = false;  // on, while backward runs
  friend bool operator==(const BackwardCase&, const BackwardCase&) = default;
};

// A schedule and what it was planned for.
struct Prepared {
  std::shared_ptr<const Schedule> schedule;
  BackwardCase expected;
  // Asked where backward turns out to be another one, or where what it needs was shed: a schedule
  // for that. Forward runs again by it.
  std::function<std::shared_ptr<const Schedule>(const BackwardCase&, bool was_shed)> other;
  // Asked where backward runs out of memory: a schedule that takes less. Forward runs again by it.
  // Where there is none, the error stands.
  std::function<std::shared_ptr<const Schedule>()> tighter;
  // Told after the last stage of backward, or where it is dropped.
  std::function<void(const Taken&)> finished;
  std::optional<c10::Device> measured;  // on which device the step's peak is read
  bool by_instruction = false;          // … and that of each instruction

  std::shared_ptr<GraphedStep> graphed;  // the schedule as CUDA graphs; null: it is run as it is
  // Told why a step was not run by them after all.
  std::function<void(const std::string& reason)> not_graphed;
};

// Sees whether a tensor is changed in place from now on. Holds its version counter, not its memory.
class Guard {
 public:
  explicit Guard(const at::Tensor& tensor);
  bool is_changed() const { return counter_.enabled() && counter_.current_version() != version_; }

 private:
  c10::VariableVersion counter_;  // not enabled: of an inference tensor
  std::uint32_t version_;
};

// One training step, from its forward to the end of its backward: what the nodes share that stand
// for it in autograd.
class BegunStep {
 public:
  using variable_list = torch::autograd::variable_list;

  BegunStep(std::shared_ptr<const Prepared> prepared, std::vector<at::Tensor> inputs);
  ~BegunStep();
  BegunStep(const BegunStep&) = delete;
  BegunStep& operator=(const BegunStep&) = delete;

  // Returns the outputs, undefined where there is none.
  std::vector<at::Tensor> run_forward();

  const Program& program() const { return *prepared_->schedule->program; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }

  // Whose gradients a stage hands over. The last one also stands for inputs that get none here, but
  // would by another backward.
  std::vector<std::int32_t> inputs_of(std::size_t stage) const;

  // Runs stage `index` of the schedule that forward was run by, or, where backward is another one,
  // all of that other one at once. Returns the gradients of the stage's inputs.
  std::vector<at::Tensor> run_stage(std::size_t index, variable_list&& tangents);

  // Lets go of what is kept for backward, which asks for another schedule then.
  void shed();
  // Lets go of all that autograd needs no more.
  void release();

 private:
  using Tensors = std::map<SlotId, at::Tensor>;

  // Copies, of which those share a storage that did.
  static Tensors copies_of(const Tensors& tensors);

  // What another schedule would need to run forward again.
  void remember();
  std::vector<at::Tensor> call_forward();
  std::vector<at::Tensor> replay_forward();
  // Outputs in one storage that forward has made count changes together. Where some have memory in
  // common, autograd refuses to change them in place: it does not know what becomes of the others.
  void tie_together(std::vector<at::Tensor>& outputs) const;

  void begin(variable_list&& tangents);
  void begin_replay(variable_list&& tangents);
  std::vector<at::Tensor> call_stage(std::size_t index);
  std::vector<at::Tensor> replay_stage(std::size_t index);
  void run_planned(std::size_t index);
  void end();
  void finish(bool whole);

  // Forward runs again by another schedule, then all of its backward. Stages take from that.
  // `undoing`: a backward that could not end may have changed inputs.
  void run_other(std::shared_ptr<const Schedule> schedule, variable_list&& tangents,
                 bool undoing = false);
  // Forward, run again, has changed copies. Inputs that backward changes, too, as checkpointed
  // regions do with buffers, take their places: `undoing` gives them what the copies have.
  void put_in_place(const Tensors& copies, bool undoing);
  // By ever tighter schedules, until one fits, or there is none: then the callback throws.
  void run_tighter(const variable_list& tangents);
  // Copies of what backward was handed, a loss's gradient for one, where they cost nothing.
  void remember_small(const variable_list& tangents);
  // What backward was handed, where all of it is still there: it can begin anew.
  std::optional<variable_list> tangents_left() const;
  void place(variable_list&& tangents, const Program& ran);

  bool are_changed(const std::vector<std::int32_t>& inputs) const;
  const Frame* kept() const { return kept_ ? &*kept_ : nullptr; }

  std::shared_ptr<const Prepared> prepared_;
  std::vector<at::Tensor> inputs_;
  RandomStates random_;           // before forward
  Tensors remembered_;            // inputs that forward changes, before it
  std::optional<Frame> kept_;     // as forward left it; none: a backward took it
  std::optional<Frame> working_;  // of the backward that runs
  // The step's number, where CUDA graphs run it, from forward to the end of backward.
  std::shared_ptr<const std::uint64_t> replayed_;
  std::shared_ptr<const Schedule> other_;
  variable_list small_tangents_;
  std::vector<bool> had_gradient_;    // by input, when backward began
  std::vector<Guard> input_guards_;   // since forward
  std::vector<Guard> output_guards_;  // of those that backward reads
  bool running_ = false;
  bool is_shed_ = false;
  bool is_spent_ = false;  // a backward took what forward left
  bool told_ = false;      // who listens, what the step took
  StepMeter meter_;
};

}  // namespace reprise::runtime
