// SPDX-License-Identifier: Apache-2.0
// In place of normalize.cpp where PyTorch has no CUDA.
#include <stdexcept>

#include "runtime/normalize.h"

namespace reprise::runtime {

at::Tensor normalize(const at::Tensor&, const std::optional<at::Tensor>&,
                     const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&,
                     const std::optional<at::Tensor>&, bool, bool) {
  throw std::runtime_error("reprise::normalize wants a PyTorch that is built with CUDA");
}

}  // namespace reprise::runtime
