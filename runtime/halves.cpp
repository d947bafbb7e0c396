// SPDX-License-Identifier: Apache-2.0
#include "runtime/halves.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "runtime/cuda_graph.h"

namespace reprise::runtime {
namespace {

constexpr std::size_t kMask = 10;  // the argument that says which gradients are wanted

torch::jit::Stack with_mask(torch::jit::Stack arguments, std::array<bool, 3> wanted) {
  arguments[kMask] = c10::List<bool>({wanted[0], wanted[1], wanted[2]});
  return arguments;
}

// The second stream of a device, the same each time: allocators keep memory by stream.
c10::Stream second_stream(const c10::impl::VirtualGuardImpl& guard, c10::Device device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  return streams.emplace(device.index(), guard.getStreamFromGlobalPool(device)).first->second;
}

// What is on `later` from now on waits for what is on `earlier` by now.
void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event done(earlier.device_type());
  done.record(earlier);
  done.block(later);
}

// Two streams for as long as it lives: the second begins after the first, which then waits for it.
class Fork {
 public:
  Fork(c10::Stream first, c10::Stream second) : first_(first), second_(second) {
    order(first_, second_);
  }
  ~Fork() {
    try {
      order(second_, first_);
    } catch (const c10::Error&) {  // the device is beyond help, which the next call tells
    }
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;

 private:
  c10::Stream first_, second_;
};

// The second stream's memory is read on the first: not before that has come so far is it free for
// others. In a recording all is in order, and nothing is held back.
void keep_until_read(const c10::impl::VirtualGuardImpl& guard, const torch::jit::Stack& results,
                     const c10::Stream& reader) {
  if (is_recording()) return;
  for (const c10::IValue& result : results) {
    if (!result.toTensor().defined()) continue;
    guard.recordDataPtrOnStream(result.toTensor().storage().data_ptr(), reader);
  }
}

}  // namespace

void run_halves_at_once(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                        c10::Device device) {
  const torch::jit::Stack arguments = std::exchange(stack, {});
  const c10::List<bool> wanted = arguments[kMask].toBoolList();
  torch::jit::Stack input = with_mask(arguments, {wanted[0], false, false});
  torch::jit::Stack weights = with_mask(arguments, {false, wanted[1], wanted[2]});
  if (device.is_cpu()) {
    op.callBoxed(input);
    op.callBoxed(weights);
  } else {
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::Stream first = guard.getStream(device);
    const c10::Stream second = second_stream(guard, device);
    const Fork fork(first, second);
    {
      const c10::StreamGuard on(second);
      op.callBoxed(weights);
    }
    keep_until_read(guard, weights, first);
    op.callBoxed(input);
  }
  stack = {std::move(input[0]), std::move(weights[1]), std::move(weights[2])};
}

}  // namespace reprise::runtime
