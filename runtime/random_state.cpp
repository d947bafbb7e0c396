// SPDX-License-Identifier: Apache-2.0
#include "runtime/random_state.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <mutex>

namespace reprise::runtime {
namespace {

void set_all(const RandomStates& states) {
  for (const auto& [device, state] : states) set_random_state(device, state);
}

}  // namespace

std::string random_state(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

void set_random_state(c10::Device device, const std::string& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(state.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
  const std::lock_guard lock(generator.mutex());
  generator.set_state(bytes);
}

void with_random_states(const RandomStates& states, const std::function<void()>& work) {
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
