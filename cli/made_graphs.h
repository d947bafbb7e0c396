// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/core/graph.h"

namespace reprise::cli {

// Graphs for measurements where no files are at hand: the same on every machine.

// A training step in the shape of ResNet-50 at batch 1: 16 bottleneck blocks, costs in FLOPs.
Graph residual_graph();

// 100 ops in 20 layers, each with a value of the layer before and one of any before that, sizes and
// costs drawn by lot: a graph without phases, in which the order matters (after Gagrani et al.,
// 2022).
Graph layered_graph();

}  // namespace reprise::cli
