// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <limits>

#include "runtime/normalize.h"

namespace reprise::runtime {
namespace {

constexpr std::uint32_t kThreads = 256;  // of a block
constexpr std::uint32_t kBytes = 16;     // that a thread reads at once

// What a kernel is given; weight, bias and addend may be null.
template <typename Number, typename Weight>
struct Images {
  Number* y;
  const Number* x;
  const Number* addend;
  const Weight* weight;
  const Weight* bias;
  const float* mean;
  const float* scale;
  std::uint32_t size, pixels, channels;
  bool relu;
};

struct Channel {
  float mean, scale, weight, bias;
};

template <typename Number, typename Weight>
__device__ Channel channel_of(const Images<Number, Weight>& images, std::uint32_t plane) {
  const std::uint32_t channel = plane % images.channels;
  return {images.mean[channel], images.scale[channel],
          images.weight == nullptr ? 1.0F : static_cast<float>(images.weight[channel]),
          images.bias == nullptr ? 0.0F : static_cast<float>(images.bias[channel])};
}

// Rounds after each part, as PyTorch's kernels do, which leave their results in memory.
template <typename Number>
__device__ Number normalized(Number x, const Channel& channel) {
  return static_cast<Number>(
      fmaf(channel.weight * (static_cast<float>(x) - channel.mean), channel.scale, channel.bias));
}

template <typename Number>
__device__ Number added(Number y, Number addend) {
  return static_cast<Number>(static_cast<float>(y) + static_cast<float>(addend));
}

template <typename Number>
__device__ Number rectified(Number y) {
  const auto number = static_cast<float>(y);
  return isnan(number) ? y : static_cast<Number>(fmaxf(number, 0.0F));
}

template <typename Number, std::uint32_t kWidth>
struct alignas(sizeof(Number) * kWidth) Pack {
  Number numbers[kWidth];
};

template <std::uint32_t kWidth, typename Number>
__device__ Pack<Number, kWidth> load(const Number* from, std::uint32_t count) {
  if (count == kWidth) return *reinterpret_cast<const Pack<Number, kWidth>*>(from);
  Pack<Number, kWidth> pack;
  for (std::uint32_t i = 0; i < count; ++i) pack.numbers[i] = from[i];
  return pack;
}

template <std::uint32_t kWidth, typename Number>
__device__ void store(Number* to, const Pack<Number, kWidth>& pack, std::uint32_t count) {
  if (count == kWidth) {
    *reinterpret_cast<Pack<Number, kWidth>*>(to) = pack;
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i) to[i] = pack.numbers[i];
}

// Each thread does the next kWidth numbers, which may be of several channels.
template <std::uint32_t kWidth, typename Number, typename Weight>
__global__ void normalize_kernel(const Images<Number, Weight> images) {
  const std::uint32_t begin = (blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (begin >= images.size) return;
  const std::uint32_t count = min(kWidth, images.size - begin);
  Pack<Number, kWidth> pack = load<kWidth>(images.x + begin, count);
  Pack<Number, kWidth> addend;
  if (images.addend != nullptr) addend = load<kWidth>(images.addend + begin, count);

  std::uint32_t plane = begin / images.pixels;
  std::uint32_t pixel = begin - plane * images.pixels;
  Channel channel = channel_of(images, plane);
#pragma unroll
  for (std::uint32_t i = 0; i < kWidth; ++i) {
    if (i == count) break;
    if (pixel == images.pixels) {
      pixel = 0;
      channel = channel_of(images, ++plane);
    }
    ++pixel;
    Number& number = pack.numbers[i];
    number = normalized(number, channel);
    if (images.addend != nullptr) number = added(number, addend.numbers[i]);
    if (images.relu) number = rectified(number);
  }
  store<kWidth>(images.y + begin, pack, count);
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kBytes == 0;  // null is
}

template <std::uint32_t kWidth, typename Number, typename Weight>
void launch(const Images<Number, Weight>& images) {
  constexpr std::uint32_t kOfBlock = kThreads * kWidth;
  const std::uint32_t blocks = (images.size + kOfBlock - 1) / kOfBlock;
  normalize_kernel<kWidth><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(images);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename Number>
const Number* data_of(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->const_data_ptr<Number>() : nullptr;
}

template <typename Number, typename Weight>
void run(const at::Tensor& y, const at::Tensor& x, const std::optional<at::Tensor>& weight,
         const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& scale,
         const std::optional<at::Tensor>& addend, bool relu) {
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
                                      .relu = relu};
  if (is_aligned(images.y) && is_aligned(images.x) && is_aligned(images.addend)) {
    launch<kBytes / sizeof(Number)>(images);
  } else {
    launch<1>(images);
  }
}

// One number a channel, of the given type.
void check_by_channel(const at::Tensor& tensor, const at::Tensor& x, at::ScalarType type) {
  TORCH_CHECK(tensor.device() == x.device() && tensor.scalar_type() == type &&
                  tensor.is_contiguous() && tensor.numel() == x.size(1),
              "normalize wants ", x.size(1), " numbers of ", type, ", contiguous on ", x.device(),
              ", not ", tensor.scalar_type(), " ", tensor.sizes(), " on ", tensor.device());
}

// The type of weights, which biases share.
at::ScalarType check(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                     const at::Tensor& scale, const std::optional<at::Tensor>& addend) {
  TORCH_CHECK(x.is_cuda() && x.dim() >= 2 && x.is_contiguous() && x.numel() > 0 &&
                  x.numel() <= std::numeric_limits<std::int32_t>::max(),
              "normalize wants contiguous images on a GPU, not ", x.sizes(), " of strides ",
              x.strides(), " on ", x.device());
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
                "normalize wants an addend like ", x.scalar_type(), " ", x.sizes(), ", not ",
                addend->scalar_type(), " ", addend->sizes());
  }
  return type;
}

}  // namespace

at::Tensor normalize(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                     const at::Tensor& scale, const std::optional<at::Tensor>& addend, bool relu) {
  const at::ScalarType type = check(x, weight, bias, mean, scale, addend);
  const c10::cuda::CUDAGuard on(x.device());
  at::Tensor y = at::empty_like(x);
  const auto run_with = [&]<typename Number>() {
    if (type == at::kFloat) {
      run<Number, float>(y, x, weight, bias, mean, scale, addend, relu);
    } else {
      run<Number, Number>(y, x, weight, bias, mean, scale, addend, relu);
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
