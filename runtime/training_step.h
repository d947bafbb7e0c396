// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  std::function<void(const Taken&)>
      finished;                         // after the last stage of backward, or where it is dropped
  std::optional<c10::Device> measured;  // on which device the step's peak is read
  bool by_instruction = false;          // … and that of each instruction

  std::shared_ptr<GraphedStep> graphed;  // the schedule as CUDA graphs; null: it is run as it is
  // Told why a step was not run by them after all.
  std::function<void(const std::string& reason)> not_graphed;
};

class Step;

// A step whose forward has run, for as long as its backward can.
class Begun {
 public:
  explicit Begun(std::weak_ptr<Step> step) : step_(std::move(step)) {}

  // Lets go of what is kept for backward. It then asks for another schedule, by which forward runs
  // again.
  void shed() const;

 private:
  std::weak_ptr<Step> step_;
};

// Runs forward and hangs backward into autograd: a chain of nodes, one a stage, so that each
// gradient reaches its parameter when it is final. Outputs are what forward returns; undefined
// stands for an output that is no tensor.
std::pair<std::vector<at::Tensor>, Begun> run_step(std::shared_ptr<const Prepared> prepared,
                                                   const std::vector<at::Tensor>& inputs);

}  // namespace reprise::runtime
