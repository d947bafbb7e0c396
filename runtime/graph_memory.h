// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "runtime/cuda_graph.h"
#include "runtime/lent_memory.h"

namespace reprise::runtime {

// The memory that the graphs of several steps run in, one step at a time.
class GraphMemory {
 public:
  explicit GraphMemory(c10::Device device) : pool(std::make_shared<GraphPool>(device)) {}

  // Before anything else is done with what was lent: nothing of it lies in the pool any more.
  void settle() {
    if (!is_busy()) move_out(kNoStep);
  }

  // Is there a step whose forward has run and whose backward has not ended?
  bool is_busy() const { return !step_.expired(); }
  // A step's number. It runs for as long as this is held.
  std::shared_ptr<const std::uint64_t> begin_step();

  // What callers hold gets memory of its own before `step` writes.
  void move_out(std::uint64_t step) {
    pool->enter();
    lent.move_out(step);
  }

  std::shared_ptr<GraphPool> pool;
  LentMemory lent;

 private:
  static constexpr std::uint64_t kNoStep = 0;
  std::uint64_t steps_ = kNoStep;
  std::weak_ptr<const std::uint64_t> step_;
};

}  // namespace reprise::runtime
