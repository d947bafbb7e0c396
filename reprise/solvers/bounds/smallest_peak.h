// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "reprise/core/graph.h"

namespace reprise {

// No plan has a smaller peak.
struct PeakBound {
  Bytes bytes;
  std::optional<OpId> op;  // that needs it by itself; none: it is what is kept at the end
};

// The largest op: its inputs, outputs and workspace, an input that is overwritten counting once; or
// all kept values together, if that is more. Ties go to the first op. O(ops + edges).
PeakBound smallest_peak_bound(const Graph& graph);

}  // namespace reprise
