// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace reprise::runtime {

// A tensor that shares its storage: its position, that of the first on that storage, and how many
// bytes it begins after that one.
using Shared = std::tuple<std::size_t, std::size_t, std::int64_t>;

// Those that share a storage with another, where one of them matters. In O(tensors).
std::vector<Shared> sharing_of(const std::vector<at::Tensor>& tensors,
                               const std::vector<bool>& matters);

// Have these, which lie in one storage, surely no byte in common? Told for boxes of one whole, as
// slices are; false where that is not plain to see.
bool are_apart(const at::Tensor& a, const at::Tensor& b);

}  // namespace reprise::runtime
