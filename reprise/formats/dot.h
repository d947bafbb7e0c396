// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reprise/core/graph.h"

namespace reprise {

// The graph for Graphviz' dot: a box an op, coloured by phase, with its cost; an edge for each
// value an op reads, with its name and bytes, dashed where it may be overwritten; kept values point
// to notes of their own. Resident values are left out.
std::string write_dot(const Graph& graph);

}  // namespace reprise
