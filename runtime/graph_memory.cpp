// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph_memory.h"

namespace reprise::runtime {

std::shared_ptr<const std::uint64_t> GraphMemory::begin_step() {
  auto step = std::make_shared<const std::uint64_t>(++steps_);
  step_ = step;
  return step;
}

}  // namespace reprise::runtime
