// SPDX-License-Identifier: Apache-2.0
#include "runtime/copy_into.h"

#include <ATen/core/grad_mode.h>

#include <cstdint>

namespace reprise::runtime {
namespace {

// Each element once: dimensions along which all elements are one are cut short.
at::Tensor without_repeats(at::Tensor tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  }
  return tensor;
}

}  // namespace

void copy_into(const at::Tensor& to, const at::Tensor& from) {
  const c10::AutoGradMode no_grad(false);
  without_repeats(to).copy_(without_repeats(from.detach()), /*non_blocking=*/true);
}

}  // namespace reprise::runtime
