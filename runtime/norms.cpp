// SPDX-License-Identifier: Apache-2.0
#include "runtime/norms.h"

#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <optional>

namespace reprise::runtime {
namespace {

using torch::jit::Stack;
using MaybeTensor = std::optional<at::Tensor>;

constexpr std::string_view kForward = "aten::native_batch_norm";
constexpr std::string_view kBackward = "aten::native_batch_norm_backward";
constexpr std::string_view kCudnnForward = "aten::cudnn_batch_norm";
constexpr std::string_view kCudnnBackward = "aten::cudnn_batch_norm_backward";

// (N, C, …) as (N / parts, parts · C, …), where each channel of a part is a channel.
at::Tensor side_by_side(const at::Tensor& images, std::int64_t parts) {
  const std::int64_t batch = images.size(0);
  const std::int64_t channels = images.size(1);
  return images.view({batch / parts, parts * channels, images.numel() / (batch * channels)});
}

Stack forward(const Stack& arguments, std::int64_t parts) {
  const at::Tensor& x = arguments[0].toTensor();
  const auto weight = arguments[1].to<MaybeTensor>();
  const auto bias = arguments[2].to<MaybeTensor>();
  const auto running_mean = arguments[3].to<MaybeTensor>();
  const auto running_variance = arguments[4].to<MaybeTensor>();
  TORCH_CHECK(arguments[5].toBool(), "batch norm runs in parts only while it trains");
  const double momentum = arguments[6].toDouble();
  const double epsilon = arguments[7].toDouble();

  const std::int64_t channels = x.size(1);
  const auto [means, scales] = at::batch_norm_stats(side_by_side(x, parts), epsilon);
  const auto [mean, scale] = at::batch_norm_gather_stats_with_counts(
      means, means.view({parts, channels}), scales.view({parts, channels}), running_mean,
      running_variance, momentum, epsilon,
      at::full({parts}, x.numel() / (parts * channels), means.options()));
  return {at::batch_norm_elemt(x, weight, bias, mean, scale, epsilon), mean, scale};
}

// Gradients of x, weight and bias. scale: 1 / √(variance + ε).
Stack backward(const at::Tensor& dy, const at::Tensor& x, const MaybeTensor& weight,
               const at::Tensor& mean, const at::Tensor& scale, std::int64_t parts) {
  const std::int64_t channels = x.size(1);
  const auto [sums, products, unused_1, unused_2] = at::batch_norm_backward_reduce(
      side_by_side(dy, parts), side_by_side(x, parts), mean.repeat({parts}), scale.repeat({parts}),
      /*weight=*/{}, /*input_g=*/true, /*weight_g=*/false, /*bias_g=*/false);
  const at::Tensor sum = sums.view({parts, channels}).sum(0);
  const at::Tensor product = products.view({parts, channels}).sum(0);  // of dy and x - mean
  const at::Tensor count = at::full({1}, x.numel() / channels, x.options().dtype(at::kInt));
  return {at::batch_norm_backward_elemt(dy, x, mean, scale, weight, sum, product, count),
          product.mul(scale), sum};
}

Stack cudnn_backward(const Stack& arguments, std::int64_t parts) {
  return backward(arguments[1].toTensor(), arguments[0].toTensor(), arguments[2].toTensor(),
                  arguments[5].toTensor(), arguments[6].toTensor(), parts);
}

Stack native_backward(const Stack& arguments, std::int64_t parts) {
  TORCH_CHECK(arguments[7].toBool(), "batch norm runs in parts only while it trains");
  Stack gradients =
      backward(arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].to<MaybeTensor>(),
               arguments[5].toTensor(), arguments[6].toTensor(), parts);
  const c10::List<bool> wanted = arguments[9].toBoolList();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!wanted[i]) gradients[i] = at::Tensor();
  }
  return gradients;
}

}  // namespace

bool is_norm(std::string_view op) {
  return op == kForward || op == kBackward || op == kCudnnForward || op == kCudnnBackward;
}

Stack norm_in_parts(std::string_view op, const Stack& arguments, std::int32_t parts) {
  if (op == kBackward) return native_backward(arguments, parts);
  if (op == kCudnnBackward) return cudnn_backward(arguments, parts);
  Stack results = forward(arguments, parts);
  if (op == kCudnnForward) {  // … has a reserve as well, which is empty for contiguous images
    results.emplace_back(at::empty({0}, results[0].toTensor().options().dtype(at::kByte)));
  }
  return results;
}

}  // namespace reprise::runtime
