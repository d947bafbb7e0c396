// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace reprise::runtime {

// The state of a device's default generator, as bytes: no tensor stays behind.
std::string random_state(c10::Device device);
void set_random_state(c10::Device device, const std::string& state);

using RandomStates = std::vector<std::pair<c10::Device, std::string>>;

// Runs `work` with the generators of these devices in these states. After it, or where it throws,
// they are as they were.
void with_random_states(const RandomStates& states, const std::function<void()>& work);

// Answers for the generator of a CUDA device while a graph of its work is recorded: a state is then
// a place in the graph's own sequence, which begins anew with each replay.
class RecordedRandom {
 public:
  virtual std::string state() = 0;
  virtual void with_state(const std::string& state, const std::function<void()>& work) = 0;

 protected:
  ~RecordedRandom() = default;
};

// Null: nothing is recorded, as at the start. One recording at a time.
void set_recorded_random(RecordedRandom* recorded);

}  // namespace reprise::runtime
