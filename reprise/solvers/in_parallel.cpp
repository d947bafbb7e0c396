// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/in_parallel.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace reprise {

void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::mutex failing;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const std::lock_guard lock(failing);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads && static_cast<std::size_t>(i) < count; ++i) {
      helpers.emplace_back(work);
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace reprise
