// SPDX-License-Identifier: Apache-2.0
#include "runtime/apart.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace reprise::runtime {
namespace {

class Worker {
 public:
  Worker() {
    std::thread([this] { serve(); }).detach();
  }

  void run(const std::function<void()>& work) {
    const std::lock_guard one_at_a_time(turn_);
    std::unique_lock lock(mutex_);
    work_ = &work;
    changed_.notify_all();
    changed_.wait(lock, [&] { return work_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  [[noreturn]] void serve() {
    at::init_num_threads();
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return work_ != nullptr; });
      try {
        (*work_)();
      } catch (...) {
        error_ = std::current_exception();
      }
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex turn_;
  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;
};

}  // namespace

void run_apart(c10::Device device, const std::function<void()>& work) {
  static auto* const worker = new Worker;  // its thread ends with the process
  const at::ThreadLocalState settings;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  worker->run([&] {
    const at::ThreadLocalStateGuard same(settings);
    const c10::StreamGuard on(stream);
    work();
  });
}

}  // namespace reprise::runtime
