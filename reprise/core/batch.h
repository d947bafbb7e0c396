// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/core/graph.h"

namespace reprise {

// Do its bytes grow with the batch? Not those of a value that is resident or kept: parameters and
// their gradients are as large at any batch.
bool grows_with_batch(const Graph& graph, ValueId value);

// A graph that was given at batch 1, at another one: bytes of values that grow, workspace and costs
// are `batch` times as large. A value that grows can't overwrite one that does not, nor the other
// way round: such marks are dropped. Ids and names stay. Throws OverflowError where amounts pass
// 64 bits.
Graph at_batch(const Graph& graph, std::int64_t batch);

}  // namespace reprise
