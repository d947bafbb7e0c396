// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace reprise::runtime {

// Runs a convolution or its backward on one part of the batch after the other, which needs
// correspondingly less workspace, and puts the results together; a batch norm on all parts at once,
// which may take less time, and leaves its first result to its renewal: see norms.h. On `stack` are
// its arguments, then its results. What is a sum over the batch is added up part by part: its last
// bits may differ. A convolution's part is two images or more, as the strides of one do not tell
// its layout.
void run_in_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack, std::int32_t parts);

}  // namespace reprise::runtime
