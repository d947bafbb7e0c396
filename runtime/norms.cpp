// SPDX-License-Identifier: Apache-2.0
#include "runtime/norms.h"

#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/cuda_graph.h"
#include "runtime/normalize.h"

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

// `size` times the same number. Made once and kept for good: filling it would be a kernel of each
// graph. What is made while one is recorded lies in its memory, and is not kept.
at::Tensor constant(std::int64_t size, std::int64_t number, const at::TensorOptions& options) {
  using Key =
      std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType, std::int64_t, std::int64_t>;
  static std::mutex mutex;
  static auto& kept = *new std::map<Key, at::Tensor>;  // it outlives what frees a GPU's memory
  const c10::Device device = options.device();
  const Key key{device.type(), device.index(), c10::typeMetaToScalarType(options.dtype()), size,
                number};
  const std::lock_guard lock(mutex);
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  at::Tensor made = at::full({size}, number, options);
  if (is_recording()) return made;
  if (!device.is_cpu()) {  // other streams may read it from now on
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  }
  return kept.emplace(key, std::move(made)).first->second;
}

Stack statistics(const Stack& arguments, std::int64_t parts) {
  const at::Tensor& x = arguments[0].toTensor();
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
      constant(parts, x.numel() / (parts * channels), means.options()));
  return {at::Tensor(), mean, scale};
}

// Gradients of x, weight and bias. scale: 1 / √(variance + ε).
Stack backward(const at::Tensor& dy, const at::Tensor& x, const MaybeTensor& weight,
               const at::Tensor& mean, const at::Tensor& scale, std::int64_t parts) {
  const std::int64_t channels = x.size(1);
  std::vector<at::Tensor> repeated(static_cast<std::size_t>(parts), mean);
  repeated.resize(static_cast<std::size_t>(2 * parts), scale);
  const at::Tensor both = at::cat(repeated);  // one kernel
  const auto [sums, products, unused_1, unused_2] = at::batch_norm_backward_reduce(
      side_by_side(dy, parts), side_by_side(x, parts), both.narrow(0, 0, parts * channels),
      both.narrow(0, parts * channels, parts * channels), /*weight=*/{}, /*input_g=*/true,
      /*weight_g=*/false, /*bias_g=*/false);
  const at::Tensor sum = sums.view({parts, channels}).sum(0);
  const at::Tensor product = products.view({parts, channels}).sum(0);  // of dy and x - mean
  const at::Tensor count = constant(1, x.numel() / channels, x.options().dtype(at::kInt));
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

// Here, as a build without CUDA knows the operator, too.
TORCH_LIBRARY(reprise, library) {
  library.def(
      "normalize(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor scale, "
      "Tensor? addend, bool relu, bool folded) -> Tensor");
}

TORCH_LIBRARY_IMPL(reprise, CUDA, library) { library.impl("normalize", &normalize); }

bool is_norm(std::string_view op) {
  return op == kForward || op == kBackward || op == kCudnnForward || op == kCudnnBackward;
}

Stack norm_in_parts(std::string_view op, const Stack& arguments, std::int32_t parts) {
  if (op == kBackward) return native_backward(arguments, parts);
  if (op == kCudnnBackward) return cudnn_backward(arguments, parts);
  Stack results = statistics(arguments, parts);
  if (op == kCudnnForward) {  // … has a reserve as well, which is empty for contiguous images
    results.emplace_back(at::empty({0}, results[1].toTensor().options().dtype(at::kByte)));
  }
  return results;
}

}  // namespace reprise::runtime
