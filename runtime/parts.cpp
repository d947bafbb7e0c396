// SPDX-License-Identifier: Apache-2.0
#include "runtime/parts.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty_strided.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/norms.h"

namespace reprise::runtime {
namespace {

// How many of its first arguments have a batch. Of its results the first does, and others are sums.
std::size_t arguments_with_batch(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::convolution") return 1;
  if (name == "aten::convolution_backward") return 2;
  throw std::invalid_argument(name + " does not run in parts");
}

// Results that grow as parts come in.
class Whole {
 public:
  explicit Whole(std::int64_t images) : images_(images) {}

  void take(const torch::jit::Stack& part, std::int64_t begin) {
    if (begin == 0) results_.resize(part.size());
    for (std::size_t i = 0; i < part.size(); ++i) {
      const at::Tensor& tensor = part[i].toTensor();
      if (!tensor.defined()) continue;
      if (i == 0) {
        join(tensor, begin);
      } else {
        add(results_[i], tensor);
      }
    }
  }

  torch::jit::Stack done(const torch::jit::Stack& part) {
    torch::jit::Stack results;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const at::Tensor& tensor = results_[i];
      results.emplace_back(tensor.defined() ? tensor.to(part[i].toTensor().scalar_type()) : tensor);
    }
    return results;
  }

 private:
  void join(const at::Tensor& part, std::int64_t begin) {
    if (begin == 0) {
      std::vector<std::int64_t> sizes = part.sizes().vec();
      sizes[0] = images_;
      results_[0] = at::empty_strided(sizes, part.strides(), part.options());
    }
    results_[0].narrow(0, begin, part.size(0)).copy_(part);
  }

  // Numbers of 16 bits are added up in 32.
  static void add(at::Tensor& sum, const at::Tensor& part) {
    if (sum.defined()) {
      sum.add_(part);
    } else {
      sum = part.to(at::toOpMathType(part.scalar_type()));
    }
  }

  std::int64_t images_;
  std::vector<at::Tensor> results_;
};

}  // namespace

void run_in_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack, std::int32_t parts) {
  if (is_norm(op.operator_name().name)) {
    stack = norm_in_parts(op.operator_name().name, stack, parts);
    return;
  }
  const std::size_t with_batch = arguments_with_batch(op);
  const torch::jit::Stack arguments = std::exchange(stack, {});
  const std::int64_t images = arguments[0].toTensor().size(0);
  Whole whole(images);
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = images * part / parts;
    const std::int64_t end = images * (part + 1) / parts;
    stack = arguments;
    for (std::size_t i = 0; i < with_batch; ++i) {
      stack[i] = arguments[i].toTensor().narrow(0, begin, end - begin);
    }
    op.callBoxed(stack);
    whole.take(stack, begin);
  }
  stack = whole.done(stack);
}

}  // namespace reprise::runtime
