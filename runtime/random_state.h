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

// Runs `work` with the generators of these devices in these states. After it, or where it throws,
// they are as they were.
void with_random_states(const RandomStates& states, const std::function<void()>& work);

}  // namespace reprise::runtime
