// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace reprise::runtime {

// The bytes of a storage, as a tensor with memory of its own.
at::Tensor bytes_of(const c10::Storage& storage);

// How a tensor looks at its storage. A number may be there as its conjugate, or its negative.
struct Look {
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes, strides;
  at::TensorOptions options;
  bool is_conjugate = false;
  bool is_negative = false;

  static Look of(const at::Tensor& tensor);
  // A tensor that looks at this storage in this way.
  at::Tensor at(const c10::Storage& storage) const;
  friend bool operator==(const Look& a, const Look& b) {
    return a.offset == b.offset && a.sizes == b.sizes && a.strides == b.strides &&
           a.options.dtype() == b.options.dtype() && a.is_conjugate == b.is_conjugate &&
           a.is_negative == b.is_negative;
  }
};

}  // namespace reprise::runtime
