// SPDX-License-Identifier: Apache-2.0
#include "runtime/lent_memory.h"

#include <utility>

#include "runtime/look.h"

namespace reprise::runtime {
namespace {

void drop_owner(void* owner) { delete static_cast<std::shared_ptr<void>*>(owner); }

void give_own_memory(const c10::Storage& storage) {
  const at::Tensor copy = bytes_of(storage);
  storage.unsafeGetStorageImpl()->set_data_ptr(
      copy.storage().unsafeGetStorageImpl()->set_data_ptr({nullptr, storage.device()}));
}

}  // namespace

c10::Storage LentMemory::lend(void* data, std::size_t bytes, c10::Device device,
                              std::shared_ptr<void> owner, std::uint64_t step, bool stays) {
  auto* held = new std::shared_ptr<void>(std::move(owner));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, c10::DataPtr(data, held, &drop_owner, device),
      /*allocator=*/nullptr, /*resizable=*/false);
  lent_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(storage), step, stays});
  return c10::Storage(std::move(storage));
}

void LentMemory::move_out(std::uint64_t step) {
  const auto is_left = [&](const Lent& lent) { return lent.step == step && lent.stays; };
  for (Lent& lent : lent_) {
    if (is_left(lent)) continue;
    if (c10::intrusive_ptr<c10::StorageImpl> storage = lent.storage.lock()) {
      give_own_memory(c10::Storage(std::move(storage)));
    }
    lent.storage.reset();
  }
  std::erase_if(lent_, [&](const Lent& lent) { return !is_left(lent); });
}

}  // namespace reprise::runtime
