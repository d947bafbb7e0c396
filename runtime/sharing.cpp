// SPDX-License-Identifier: Apache-2.0
#include "runtime/sharing.h"

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

}  // namespace

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
