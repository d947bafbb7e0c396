// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace reprise::runtime {

// The state of a device's default generator, as bytes: no tensor stays behind.
std::string random_state(c10::Device device);
void set_random_state(c10::Device device, const std::string& state);

}  // namespace reprise::runtime
