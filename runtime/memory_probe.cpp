// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_probe.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace reprise::runtime {

struct Probe {
  std::mutex mutex;
  std::unordered_map<const void*, std::size_t> sizes;
  std::int64_t in_use = 0;
  std::vector<MemoryWindow*> windows;
  c10::DeleterFnPtr free_below = nullptr;

  void add(const void* data, std::size_t size) {
    const std::lock_guard lock(mutex);
    sizes[data] = size;
    in_use += static_cast<std::int64_t>(size);
    for (MemoryWindow* window : windows) window->peak_ = std::max(window->peak_, in_use);
  }
  void remove(const void* data) {
    const std::lock_guard lock(mutex);
    const auto found = sizes.find(data);
    if (found == sizes.end()) return;
    in_use -= static_cast<std::int64_t>(found->second);
    sizes.erase(found);
  }
};

namespace {

// Never destroyed: tensors may outlive everything else at exit.
Probe& probe() {
  static auto* const only = new Probe;
  return *only;
}

void free_counted(void* data) {
  if (data == nullptr) return;
  probe().remove(data);
  probe().free_below(data);
}

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& below) : below_(below) {}

  c10::DataPtr allocate(std::size_t size) override {
    c10::DataPtr data = below_.allocate(size);
    void* const pointer = data.release_context();
    if (pointer != nullptr) probe().add(pointer, size);
    return {pointer, pointer, &free_counted, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  c10::Allocator& below_;
};

}  // namespace

void install_memory_probe() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    c10::Allocator* const below = c10::GetAllocator(c10::DeviceType::CPU);
    TORCH_CHECK(below->raw_deleter() != nullptr,
                "Reprise cannot count memory on the CPU: torch's allocator there, which something "
                "else has replaced, has no raw deleter");
    probe().free_below = below->raw_deleter();
    static auto* const counting = new CountingAllocator(*below);
    c10::SetCPUAllocator(counting, 0);
  });
}

std::int64_t bytes_in_use() {
  const std::lock_guard lock(probe().mutex);
  return probe().in_use;
}

bool is_counted(const void* data) {
  const std::lock_guard lock(probe().mutex);
  return probe().sizes.contains(data);
}

MemoryWindow::MemoryWindow() {
  const std::lock_guard lock(probe().mutex);
  peak_ = probe().in_use;
  probe().windows.push_back(this);
}

MemoryWindow::~MemoryWindow() {
  const std::lock_guard lock(probe().mutex);
  std::erase(probe().windows, this);
}

std::int64_t MemoryWindow::peak() const {
  const std::lock_guard lock(probe().mutex);
  return peak_;
}

void MemoryWindow::restart() {
  const std::lock_guard lock(probe().mutex);
  peak_ = probe().in_use;
}

}  // namespace reprise::runtime
