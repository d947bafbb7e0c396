// SPDX-License-Identifier: Apache-2.0
#include "runtime/lent_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

namespace reprise::runtime {
namespace {

void drop_owner(void* owner) { delete static_cast<std::shared_ptr<void>*>(owner); }

void give_own_memory(const c10::Storage& storage) {
  const at::Tensor copy = bytes_of(storage);
  storage.unsafeGetStorageImpl()->set_data_ptr(
      copy.storage().unsafeGetStorageImpl()->set_data_ptr({nullptr, storage.device()}));
}

}  // namespace

at::Tensor bytes_of(const c10::Storage& storage) {
  const c10::AutoGradMode no_grad(false);
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(storage.device());
  return at::empty({0}, bytes).set_(storage).clone();
}

Look Look::of(const at::Tensor& tensor) {
  return {tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(),
          tensor.options(),        tensor.is_conj(),     tensor.is_neg()};
}

at::Tensor Look::at(const c10::Storage& storage) const {
  const c10::AutoGradMode no_grad(false);
  at::Tensor tensor = at::empty({0}, options).set_(storage, offset, sizes, strides);
  tensor._set_conj(is_conjugate);
  tensor._set_neg(is_negative);
  return tensor;
}

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
