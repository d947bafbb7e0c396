// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace reprise::runtime {

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
