// SPDX-License-Identifier: Apache-2.0
#include "runtime/peak_meter.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace reprise::runtime {
namespace {

// Of devices whose allocator has one peak for all.
struct Meters {
  std::mutex mutex;
  std::vector<PeakMeter*> open;
};

Meters& meters() {
  static auto* const only = new Meters;
  return *only;
}

std::int64_t allocator_peak(c10::Device device) {
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak;
}

}  // namespace

PeakMeter::PeakMeter(c10::Device device) : device_(device) {
  if (device.is_cpu()) {
    window_ = std::make_unique<MemoryWindow>();
    return;
  }
  restart();
  const std::lock_guard lock(meters().mutex);
  meters().open.push_back(this);
}

PeakMeter::~PeakMeter() {
  const std::lock_guard lock(meters().mutex);
  std::erase(meters().open, this);
}

std::int64_t PeakMeter::peak() const {
  if (window_) return window_->peak();
  const std::lock_guard lock(meters().mutex);
  return std::max(seen_, allocator_peak(device_));
}

void PeakMeter::restart() {
  if (window_) {
    window_->restart();
    return;
  }
  const std::lock_guard lock(meters().mutex);
  const std::int64_t peak = allocator_peak(device_);
  for (PeakMeter* const meter : meters().open) {
    if (meter->device_ == device_) meter->seen_ = std::max(meter->seen_, peak);
  }
  seen_ = 0;
  at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

}  // namespace reprise::runtime
