// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reprise/core/graph.h"
#include "reprise/formats/json.h"

namespace reprise {

// Node-link JSON, as networkx writes it: one value an op, both named by the node. Reads the two
// spellings in use (Checkmate's profiles and Moccasin's data set): links `source`/`target` or
// "0"/"1", bytes `cost_ram` or `out_cost`, cost `cost_cpu` or `duration`. See docs/formats.md.
// Throws InputError with the JSON path.
Graph read_node_link(const JsonDocument& document);

// In the first spelling. Value names, kinds, gradient_of and resident values are left out; what
// would change a plan's peak or what it may do (several outputs, workspace, overwriting, kept
// values, ops that may not run again) throws InputError.
std::string write_node_link(const Graph& graph);

}  // namespace reprise
