// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph_memory.h"

#include <c10/util/Exception.h>

namespace reprise::runtime {

std::shared_ptr<const std::uint64_t> GraphMemory::begin_step() {
  TORCH_INTERNAL_ASSERT(!is_busy());
  auto step = std::make_shared<const std::uint64_t>(++steps_);
  step_ = step;
  return step;
}

}  // namespace reprise::runtime
