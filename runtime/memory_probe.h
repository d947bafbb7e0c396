// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise::runtime {

// Counts what PyTorch's CPU allocator hands out, by requested bytes. Memory that was there before
// it was installed, that numpy owns, or that oneDNN and MKL take for themselves is not seen.
//
// Thread-safe. An allocation costs one locked look-up more.
void install_memory_probe();  // once; later calls do nothing. Throws where it cannot be.

std::int64_t bytes_in_use();
// Was this allocation seen? False for memory that was there before the probe.
bool is_counted(const void* data);

// The most bytes in use since it was opened. Several may be open at a time.
class MemoryWindow {
 public:
  MemoryWindow();
  ~MemoryWindow();
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;

  std::int64_t peak() const;  // bytes in use at the worst moment
  void restart();             // the peak is what is in use now

 private:
  std::int64_t peak_;
  friend struct Probe;
};

}  // namespace reprise::runtime
