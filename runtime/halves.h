// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

namespace reprise::runtime {

// Runs aten::convolution_backward as two calls at once, the one for its input's gradient, the other
// for its weights', each on a stream of its own: small kernels leave room for others on a GPU. They
// are the kernels of one call, and so are their bits. On the CPU one runs after the other. On
// `stack` are its arguments, then its results.
void run_halves_at_once(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                        c10::Device device);

}  // namespace reprise::runtime
