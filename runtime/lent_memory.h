// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
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

// Memory that is written anew again and again, parts of which are lent to callers in between. What
// a caller still holds when it is about to be written is moved: the storage gets memory of its own
// with the same bytes, and all tensors on it go on as they were.
class LentMemory {
 public:
  // A storage on [data, data + bytes). `owner` is kept for as long as it lies there. One that
  // `stays` is not written by who wrote it, until `step` is over.
  c10::Storage lend(void* data, std::size_t bytes, c10::Device device, std::shared_ptr<void> owner,
                    std::uint64_t step, bool stays);

  // Before `step` writes: storages that callers still hold get memory of their own, but for those
  // that `step` itself has lent and that stay.
  void move_out(std::uint64_t step);

 private:
  struct Lent {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::uint64_t step;
    bool stays;
  };
  std::vector<Lent> lent_;
};

}  // namespace reprise::runtime
