// SPDX-License-Identifier: Apache-2.0
#include "runtime/recorder.h"

#include <c10/util/Exception.h>

#include <atomic>

#include "runtime/cuda_graph.h"

namespace reprise::runtime {
namespace {

std::atomic<Recorder*> current = nullptr;

}  // namespace

Recording::Recording(Recorder& recorder) {
  Recorder* nobody = nullptr;
  TORCH_CHECK(current.compare_exchange_strong(nobody, &recorder),
              "another thread records a CUDA graph at the same time");
}
Recording::~Recording() { current = nullptr; }

Recorder* recorder() {
  Recorder* const found = current.load(std::memory_order_relaxed);
  return found != nullptr && is_recording() ? found : nullptr;
}

}  // namespace reprise::runtime
