// SPDX-License-Identifier: Apache-2.0
// The kernel of normalize.h, for all that CUDA's compiler need not know.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace reprise::runtime {

// Images (N, C, …), contiguous; weight, bias and addend may be null.
template <typename Number, typename Weight>
struct Images {
  Number* y;
  const Number* x;
  const Number* addend;
  const Weight* weight;
  const Weight* bias;
  const float* mean;
  const float* scale;
  std::uint32_t size;      // of all, in numbers: fewer than 2³¹
  std::uint32_t pixels;    // of one channel of an image
  std::uint32_t channels;  // of an image
  bool relu;
  bool folded;  // weight into scale, and mean into bias: see normalize.h
};

// Makes y, on a stream. For float, at::Half and at::BFloat16, with weights of the same type or
// float.
template <typename Number, typename Weight>
void launch(const Images<Number, Weight>& images, cudaStream_t stream);

}  // namespace reprise::runtime
