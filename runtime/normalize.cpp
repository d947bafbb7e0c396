// SPDX-License-Identifier: Apache-2.0
#include "runtime/normalize.h"

#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <limits>

#include "runtime/normalize_kernel.h"

namespace reprise::runtime {
namespace {

template <typename Number>
const Number* data_of(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->const_data_ptr<Number>() : nullptr;
}

template <typename Number, typename Weight>
void run(const at::Tensor& y, const at::Tensor& x, const std::optional<at::Tensor>& weight,
         const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& scale,
         const std::optional<at::Tensor>& addend, bool relu, bool folded) {
  const auto size = static_cast<std::uint32_t>(x.numel());
  const auto channels = static_cast<std::uint32_t>(x.size(1));
  const auto planes = static_cast<std::uint32_t>(x.size(0)) * channels;
  const Images<Number, Weight> images{.y = y.mutable_data_ptr<Number>(),
                                      .x = x.const_data_ptr<Number>(),
                                      .addend = data_of<Number>(addend),
                                      .weight = data_of<Weight>(weight),
                                      .bias = data_of<Weight>(bias),
                                      .mean = mean.const_data_ptr<float>(),
                                      .scale = scale.const_data_ptr<float>(),
                                      .size = size,
                                      .pixels = size / planes,
                                      .channels = channels,
                                      .relu = relu,
                                      .folded = folded};
  launch(images, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_CHECK(cudaGetLastError());
}

// One number a channel, of the given type.
void check_by_channel(const at::Tensor& tensor, const at::Tensor& x, at::ScalarType type) {
  TORCH_CHECK(tensor.device() == x.device() && tensor.scalar_type() == type &&
                  tensor.is_contiguous() && tensor.numel() == x.size(1),
              "normalize wants a number of ", type, " for each channel, and these contiguous");
}

// The type of weights, which biases share.
at::ScalarType check(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                     const at::Tensor& scale, const std::optional<at::Tensor>& addend) {
  TORCH_CHECK(x.is_cuda() && x.dim() >= 2 && x.is_contiguous() && x.numel() > 0 &&
                  x.numel() <= std::numeric_limits<std::int32_t>::max(),
              "normalize wants contiguous images on a GPU, fewer than 2^31 numbers");
  check_by_channel(mean, x, at::kFloat);
  check_by_channel(scale, x, at::kFloat);
  at::ScalarType type = at::kFloat;
  for (const auto* each : {&weight, &bias}) {
    if (!*each || !(*each)->defined()) continue;
    if ((*each)->scalar_type() == x.scalar_type()) type = x.scalar_type();
    check_by_channel(**each, x, type);
  }
  if (addend && addend->defined()) {
    TORCH_CHECK(addend->device() == x.device() && addend->scalar_type() == x.scalar_type() &&
                    addend->is_contiguous() && addend->sizes() == x.sizes(),
                "normalize wants an addend that is as the images");
  }
  return type;
}

}  // namespace

at::Tensor normalize(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                     const at::Tensor& scale, const std::optional<at::Tensor>& addend, bool relu,
                     bool folded) {
  const at::ScalarType type = check(x, weight, bias, mean, scale, addend);
  const c10::cuda::CUDAGuard on(x.device());
  at::Tensor y = at::empty_like(x);
  const auto run_with = [&]<typename Number>() {
    if (type == at::kFloat) {
      run<Number, float>(y, x, weight, bias, mean, scale, addend, relu, folded);
    } else {
      run<Number, Number>(y, x, weight, bias, mean, scale, addend, relu, folded);
    }
  };
  switch (x.scalar_type()) {
    case at::kFloat: run_with.template operator()<float>(); break;
    case at::kHalf: run_with.template operator()<at::Half>(); break;
    case at::kBFloat16: run_with.template operator()<at::BFloat16>(); break;
    default: TORCH_CHECK(false, "normalize wants numbers of 16 or 32 bits, not ", x.scalar_type());
  }
  return y;
}

}  // namespace reprise::runtime
