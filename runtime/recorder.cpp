// SPDX-License-Identifier: Apache-2.0
#include "runtime/recorder.h"

#include <atomic>

namespace reprise::runtime {
namespace {

std::atomic<Recorder*> current = nullptr;

}  // namespace

Recording::Recording(Recorder& recorder) { current = &recorder; }
Recording::~Recording() { current = nullptr; }

Recorder* recorder() { return current.load(std::memory_order_relaxed); }

}  // namespace reprise::runtime
