// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "reprise/core/graph.h"

namespace reprise {

// No plan has a smaller peak.
struct PeakBound {
  Bytes bytes;
  std::optional<OpId> op;  // while it runs; none: at the end, by what is kept
  Bytes beside;            // of these bytes, what has to be there beside the op's own
};

// What an op takes while it runs, by itself: inputs, outputs and workspace, an input that is
// overwritten counting once.
Bytes bytes_alone(const Graph& graph, OpId op);
ValueSet own_values(const Graph& graph, OpId op);  // these inputs and outputs

// The largest op: its inputs, outputs and workspace, an input that is overwritten counting once; or
// all kept values together, if that is more. Ties go to the first op. O(ops + edges).
PeakBound smallest_peak_bound(const Graph& graph);

}  // namespace reprise
