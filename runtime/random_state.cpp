// SPDX-License-Identifier: Apache-2.0
#include "runtime/random_state.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>

#include "runtime/recorder.h"

namespace reprise::runtime {
namespace {

// Who answers for the device; null: its generator.
Recorder* recorder_of(c10::Device device) { return device.is_cuda() ? recorder() : nullptr; }

void set_random_state(c10::Device device, const std::string& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(state.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
  const std::lock_guard lock(generator.mutex());
  generator.set_state(bytes);
}

void set_all(const RandomStates& states) {
  for (const auto& [device, state] : states) set_random_state(device, state);
}

}  // namespace

std::string random_state(c10::Device device) {
  if (Recorder* current = recorder_of(device)) return current->random_state();
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

void Draw::make(c10::Device device, const std::function<void()>& work) {
  before_ = random_state(device);
  work();
  after_ = random_state(device);
}

void Draw::repeat(c10::Device device, const std::function<void()>& work) const {
  std::string after;
  with_random_states({{device, before_}}, [&] {
    work();
    after = random_state(device);
  });
  if (recorder_of(device) != nullptr) return;  // it has generators of its own, as nobody else has
  TORCH_CHECK(after == after_,
              "random numbers can't be drawn again: another thread draws from the "
              "generator of ",
              device.str(), ", too, while a step runs; give it a generator of its own");
}

void with_random_states(const RandomStates& states, const std::function<void()>& work) {
  if (states.size() == 1) {
    if (Recorder* current = recorder_of(states.front().first)) {
      current->with_random_state(states.front().second, work);
      return;
    }
  }
  RandomStates before;
  for (const auto& [device, state] : states) before.emplace_back(device, random_state(device));
  try {
    set_all(states);
    work();
  } catch (...) {
    set_all(before);
    throw;
  }
  set_all(before);
}

}  // namespace reprise::runtime
