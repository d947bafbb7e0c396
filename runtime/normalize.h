// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace reprise::runtime {

// The operator reprise::normalize, which a GPU has a kernel for: the last part of batch norm, and
// what may follow it, in one pass over images (N, C, …) where PyTorch makes three. Computes
// (x - mean) · scale · weight + bias, then + addend, then 0 for what is below, each where it is
// there, with the bits that batch_norm_elemt, add_ and relu_ make one after the other. `folded`:
// as x · (scale · weight) + (bias - mean · scale · weight), in cuDNN's way for small images.
//
// Images are numbers of 16 or 32 bits, contiguous, and fewer than 2³¹; mean and scale have 32 bits,
// weight and bias those or the images'. Throws c10::Error, "normalize wants …", for others, and
// std::runtime_error where this build has no CUDA.
at::Tensor normalize(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                     const at::Tensor& scale, const std::optional<at::Tensor>& addend, bool relu,
                     bool folded);

}  // namespace reprise::runtime
