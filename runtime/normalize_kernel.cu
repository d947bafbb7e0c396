// SPDX-License-Identifier: Apache-2.0
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "runtime/normalize_kernel.h"

namespace reprise::runtime {
namespace {

constexpr std::uint32_t kThreads = 256;  // of a block
constexpr std::uint32_t kBytes = 16;     // that a thread reads at once

struct Channel {
  float mean, scale, weight, bias;
};

template <typename Number, typename Weight>
__device__ Channel channel_of(const Images<Number, Weight>& images, std::uint32_t plane) {
  const std::uint32_t i = plane % images.channels;
  const Channel channel{images.mean[i], images.scale[i],
                        images.weight == nullptr ? 1.0F : static_cast<float>(images.weight[i]),
                        images.bias == nullptr ? 0.0F : static_cast<float>(images.bias[i])};
  if (!images.folded) return channel;
  const float scale = channel.weight * channel.scale;
  const float bias = __fsub_rn(channel.bias, __fmul_rn(channel.mean, scale));  // two roundings
  return {0.0F, scale, 1.0F, bias};
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
void launch_by(const Images<Number, Weight>& images, cudaStream_t stream) {
  constexpr std::uint32_t kOfBlock = kThreads * kWidth;
  const std::uint32_t blocks = (images.size + kOfBlock - 1) / kOfBlock;
  normalize_kernel<kWidth><<<blocks, kThreads, 0, stream>>>(images);
}

}  // namespace

template <typename Number, typename Weight>
void launch(const Images<Number, Weight>& images, cudaStream_t stream) {
  if (is_aligned(images.y) && is_aligned(images.x) && is_aligned(images.addend)) {
    launch_by<kBytes / sizeof(Number)>(images, stream);
  } else {
    launch_by<1>(images, stream);
  }
}

template void launch(const Images<float, float>&, cudaStream_t);
template void launch(const Images<at::Half, float>&, cudaStream_t);
template void launch(const Images<at::Half, at::Half>&, cudaStream_t);
template void launch(const Images<at::BFloat16, float>&, cudaStream_t);
template void launch(const Images<at::BFloat16, at::BFloat16>&, cudaStream_t);

}  // namespace reprise::runtime
