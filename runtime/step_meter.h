// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/peak_meter.h"

namespace reprise::runtime {

// What a step took.
struct Taken {
  bool whole = false;                // backward ran to its end, as planned
  std::int64_t peak = 0;             // bytes in use at the worst moment; 0: not measured
  std::int64_t inside_peak = 0;      // … in forward or backward
  std::int64_t outside_peak = 0;     // … between them
  std::int64_t forward_end = 0;      // bytes in use when forward was over …
  std::int64_t backward_begin = 0;   // … and when backward began
  std::vector<std::int64_t> peaks;   // by instruction, where that was measured
  std::vector<std::int64_t> before;  // … what was in use before it
  std::vector<bool> had_gradient;    // by input, when backward began; empty: it did not
};

// Bytes in use on a device, by instruction: at its worst moment, and before it.
struct InstructionPeaks {
  explicit InstructionPeaks(c10::Device device) : meter(device) {}

  PeakMeter meter;
  std::vector<std::int64_t> peaks;
  std::vector<std::int64_t> before;
};

// Measures what a step takes, from its start to its finish; before and after, nothing.
class StepMeter {
 public:
  void start(c10::Device device, bool by_instruction);
  void leave_forward();
  void begin_backward();
  Taken finish(bool whole);

  // Of the instructions that run; null: they are not measured one by one.
  InstructionPeaks* instruction_peaks() {
    return instruction_peaks_ ? &*instruction_peaks_ : nullptr;
  }

 private:
  std::optional<PeakMeter> meter_;
  std::optional<InstructionPeaks> instruction_peaks_;
  Taken taken_;
};

}  // namespace reprise::runtime
