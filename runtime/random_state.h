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

using RandomStates = std::vector<std::pair<c10::Device, std::string>>;

// What a call has drawn from a device's default generator, to be drawn again.
class Draw {
 public:
  // Runs `work`, which draws.
  void make(c10::Device device, const std::function<void()>& work);
  // Runs `work` so that it draws the same. Throws where somebody else has drawn in between, there
  // or when it was made.
  void repeat(c10::Device device, const std::function<void()>& work) const;

 private:
  std::string before_, after_;  // states
};

// Runs `work` with the generators of these devices in these states. After it, or where it throws,
// they are as they were.
void with_random_states(const RandomStates& states, const std::function<void()>& work);

}  // namespace reprise::runtime
