// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <string_view>

namespace reprise::runtime {

// Is it a batch norm or its backward, which run on parts of the batch at once?
bool is_norm(std::string_view op);

// Batch norm by the kernels of PyTorch's SyncBatchNorm, with parts of the batch for devices. They
// reduce a channel in one block of threads, which leaves a GPU idle where there are few: here each
// part's channels are channels of their own. Takes arguments, returns results; last bits may
// differ. Forward makes the statistics alone: its first result, which is left undefined, is for its
// renewal to make. Throws c10::Error where the batch can't be divided or is not contiguous, and
// where batch norm does not train.
torch::jit::Stack norm_in_parts(std::string_view op, const torch::jit::Stack& arguments,
                                std::int32_t parts);

}  // namespace reprise::runtime
