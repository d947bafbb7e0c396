// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "runtime/memory_probe.h"

namespace reprise::runtime {

// The most bytes in use on a device since the last restart: the probe's on the CPU, elsewhere the
// caching allocator's own peak. That restarts for everybody, so other meters are told before.
class PeakMeter {
 public:
  explicit PeakMeter(c10::Device device);
  ~PeakMeter();
  PeakMeter(const PeakMeter&) = delete;
  PeakMeter& operator=(const PeakMeter&) = delete;

  std::int64_t peak() const;
  void restart();

 private:
  c10::Device device_;
  std::unique_ptr<MemoryWindow> window_;  // on the CPU
  std::int64_t seen_ = 0;  // elsewhere: the most before others restarted the allocator's peak
};

}  // namespace reprise::runtime
