// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_probe.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace reprise::runtime {
namespace {

at::Tensor bytes(std::int64_t count) { return at::empty(count, at::kByte); }

TEST(MemoryProbe, CountsRequestedBytesUntilTheyAreFreed) {
  install_memory_probe();
  install_memory_probe();  // once is enough
  const std::int64_t before = bytes_in_use();
  at::Tensor a = bytes(100);
  EXPECT_EQ(bytes_in_use() - before, 100);
  EXPECT_TRUE(is_counted(a.storage().data_ptr().get_context()));
  const at::Tensor view = a.slice(0, 0, 10);
  a.reset();
  EXPECT_EQ(bytes_in_use() - before, 100);
  EXPECT_FALSE(is_counted(&before));
}

TEST(MemoryProbe, FreesWhatAViewHeld) {
  install_memory_probe();
  const std::int64_t before = bytes_in_use();
  bytes(100).slice(0, 0, 10);
  EXPECT_EQ(bytes_in_use(), before);
}

TEST(MemoryWindow, HasThePeakSinceItWasOpened) {
  install_memory_probe();
  const at::Tensor there = bytes(1000);
  const std::int64_t before = bytes_in_use();
  MemoryWindow outer;
  bytes(300);
  const at::Tensor kept = bytes(100);
  {
    const MemoryWindow inner;
    bytes(50);
    EXPECT_EQ(outer.peak() - before, 300);
    EXPECT_EQ(inner.peak() - before, 150);
  }
  outer.restart();
  EXPECT_EQ(outer.peak() - before, 100);
  bytes(5000);
  EXPECT_EQ(outer.peak() - before, 5100);
}

}  // namespace
}  // namespace reprise::runtime
