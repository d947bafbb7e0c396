// SPDX-License-Identifier: Apache-2.0
#include "runtime/halves.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

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
    order(first, second);
    {
      const c10::StreamGuard on(second);
      op.callBoxed(weights);
    }
    op.callBoxed(input);
    order(second, first);
  }
  stack = {std::move(input[0]), std::move(weights[1]), std::move(weights[2])};
}

}  // namespace reprise::runtime
