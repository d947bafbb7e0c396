// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace reprise::runtime {

// Copies a tensor to one that lies as it does, elements that share memory once.
void copy_into(const at::Tensor& to, const at::Tensor& from);

}  // namespace reprise::runtime
