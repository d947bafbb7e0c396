// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "runtime/begun_step.h"

namespace reprise::runtime {

// A step whose forward has run, for as long as its backward can.
class Begun {
 public:
  explicit Begun(std::weak_ptr<BegunStep> step) : step_(std::move(step)) {}

  // Lets go of what is kept for backward. It then asks for another schedule, by which forward runs
  // again.
  void shed() const;

 private:
  std::weak_ptr<BegunStep> step_;
};

// Runs forward and hangs backward into autograd: a chain of nodes, one a stage, so that each
// gradient reaches its parameter when it is final. Outputs are what forward returns; undefined
// stands for an output that is no tensor.
std::pair<std::vector<at::Tensor>, Begun> run_step(std::shared_ptr<const Prepared> prepared,
                                                   const std::vector<at::Tensor>& inputs);

}  // namespace reprise::runtime
