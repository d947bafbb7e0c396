// SPDX-License-Identifier: Apache-2.0
#include "runtime/sharing.h"

#include <algorithm>
#include <unordered_map>

namespace reprise::runtime {
namespace {

struct Group {
  std::size_t first = 0;
  bool matters = false;
  bool is_shared = false;
};

std::int64_t begin_of(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
}

// Dimensions of more than one element in either, from the narrowest stride on.
std::vector<std::int64_t> dimensions_of(const at::Tensor& a, const at::Tensor& b) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 || b.size(d) > 1) dimensions.push_back(d);
  }
  std::ranges::sort(dimensions, {}, [&](std::int64_t d) { return a.stride(d); });
  return dimensions;
}

// A tensor as a box in a whole: where it begins and ends in each of these dimensions.
struct Box {
  std::vector<std::int64_t> begin, end, stride;
  std::int64_t rest = 0;  // of where it begins, less than the narrowest stride

  Box(const at::Tensor& tensor, const std::vector<std::int64_t>& dimensions)
      : begin(dimensions.size()),
        end(dimensions.size()),
        stride(dimensions.size()),
        rest(tensor.storage_offset()) {
    for (std::size_t i = dimensions.size(); i-- > 0;) {
      stride[i] = tensor.stride(dimensions[i]);
      begin[i] = rest / stride[i];
      end[i] = begin[i] + tensor.size(dimensions[i]);
      rest %= stride[i];
    }
  }

  // Does each row end before the next begins? Only then are its elements no other box's.
  bool fits() const {
    std::int64_t last = rest;
    for (std::size_t i = 0; i < stride.size(); ++i) {
      if (last >= stride[i]) return false;
      last += (end[i] - 1) * stride[i];
    }
    return true;
  }
};

}  // namespace

bool are_apart(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return true;
  if (a.dim() != b.dim() || a.element_size() != b.element_size()) return false;
  const std::vector<std::int64_t> dimensions = dimensions_of(a, b);
  const auto is_alike = [&](std::int64_t d) {
    return a.stride(d) == b.stride(d) && a.stride(d) > 0;
  };
  if (!std::ranges::all_of(dimensions, is_alike)) return false;
  const Box one(a, dimensions);
  const Box other(b, dimensions);
  if (!one.fits() || !other.fits()) return false;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (one.end[i] <= other.begin[i] || other.end[i] <= one.begin[i]) return true;
  }
  return one.rest != other.rest;
}

std::vector<Shared> sharing_of(const std::vector<at::Tensor>& tensors,
                               const std::vector<bool>& matters) {
  std::unordered_map<const c10::StorageImpl*, Group> groups;
  groups.reserve(tensors.size());
  bool any = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto [found, is_new] =
        groups.try_emplace(tensors[i].storage().unsafeGetStorageImpl(), Group{.first = i});
    Group& group = found->second;
    group.matters = group.matters || matters[i];
    group.is_shared = group.is_shared || !is_new;
    any = any || (group.is_shared && group.matters);
  }
  std::vector<Shared> shared;
  if (!any) return shared;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Group& group = groups.at(tensors[i].storage().unsafeGetStorageImpl());
    if (!group.matters || !group.is_shared) continue;
    shared.emplace_back(i, group.first, begin_of(tensors[i]) - begin_of(tensors[group.first]));
  }
  return shared;
}

}  // namespace reprise::runtime
