// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/cuda_graph.h"
#include "runtime/lent_memory.h"

namespace reprise::runtime {

// The memory that the graphs of several steps run in, one step at a time.
class GraphMemory {
 public:
  explicit GraphMemory(c10::Device device) : pool(std::make_shared<GraphPool>(device)) {}

  // Before anything else is done with what was lent: nothing of it lies in the pool any more. Not
  // in a recording, which nothing outside of it may be waited for in.
  void settle() {
    if (!is_busy() && !is_recording()) move_out(kNoStep);
  }

  // Is there a step whose forward has run and whose backward has not ended?
  bool is_busy() const { return !step_.expired(); }
  // A step runs for as long as this is held.
  std::shared_ptr<const std::uint64_t> begin_step();

  // Before the step that runs writes: what callers hold gets memory of its own.
  void move_out() { move_out(steps_); }

  // Lends what the step that runs has made: a storage on [data, data + bytes), which `stays` where
  // that step will not write there again.
  c10::Storage lend(void* data, std::size_t bytes, bool stays) {
    return lent_.lend(data, bytes, pool->device(), pool, steps_, stays);
  }

  std::shared_ptr<GraphPool> pool;

 private:
  static constexpr std::uint64_t kNoStep = 0;

  void move_out(std::uint64_t step) {
    pool->enter();
    lent_.move_out(step);
  }

  LentMemory lent_;
  std::uint64_t steps_ = kNoStep;  // that have begun
  std::weak_ptr<const std::uint64_t> step_;
};

}  // namespace reprise::runtime
