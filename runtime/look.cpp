// SPDX-License-Identifier: Apache-2.0
#include "runtime/look.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace reprise::runtime {

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

}  // namespace reprise::runtime
