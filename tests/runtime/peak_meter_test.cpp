// SPDX-License-Identifier: Apache-2.0
#include "runtime/peak_meter.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace reprise::runtime {
namespace {

TEST(PeakMeter, ReadsTheProbeOnTheCpu) {
  install_memory_probe();
  const std::int64_t before = bytes_in_use();
  PeakMeter meter(c10::kCPU);
  at::empty(70, at::kByte);
  EXPECT_EQ(meter.peak() - before, 70);
  meter.restart();
  EXPECT_EQ(meter.peak() - before, 0);
}

}  // namespace
}  // namespace reprise::runtime
