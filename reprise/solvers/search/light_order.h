// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "reprise/core/graph.h"

namespace reprise {

// All ops once, each time the ready one that adds least to what is there: ties to the program
// order.
std::vector<OpId> light_order(const Graph& graph);

}  // namespace reprise
