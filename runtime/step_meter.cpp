// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_meter.h"

#include <algorithm>
#include <utility>

namespace reprise::runtime {

void StepMeter::start(c10::Device device, bool by_instruction) {
  meter_.emplace(device);
  if (by_instruction) instruction_peaks_.emplace(device);
}

void StepMeter::leave_forward() {
  if (!meter_) return;
  taken_.peak = taken_.inside_peak = meter_->peak();
  meter_->restart();
  taken_.forward_end = meter_->peak();
}

void StepMeter::begin_backward() {
  if (!meter_) return;
  taken_.outside_peak = meter_->peak();
  taken_.peak = std::max(taken_.peak, taken_.outside_peak);
  meter_->restart();
  taken_.backward_begin = meter_->peak();
  if (instruction_peaks_) instruction_peaks_->meter.restart();
}

Taken StepMeter::finish(bool whole) {
  taken_.whole = whole;
  if (meter_) {
    taken_.inside_peak = std::max(taken_.inside_peak, meter_->peak());
    taken_.peak = std::max(taken_.peak, taken_.inside_peak);
  }
  if (instruction_peaks_) {
    taken_.peaks = std::move(instruction_peaks_->peaks);
    taken_.before = std::move(instruction_peaks_->before);
    for (const std::int64_t peak : taken_.peaks) taken_.peak = std::max(taken_.peak, peak);
  }
  meter_.reset();
  instruction_peaks_.reset();
  return std::move(taken_);
}

}  // namespace reprise::runtime
