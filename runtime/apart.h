// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>

namespace reprise::runtime {

// Runs `work` on a thread that is there for this alone, as if it ran here: on the device's current
// stream, with the same thread-local settings, what it throws is thrown here. cuDNN's choices of
// algorithms are kept by thread, so convolutions that run there have choices of their own.
void run_apart(c10::Device device, const std::function<void()>& work);

}  // namespace reprise::runtime
