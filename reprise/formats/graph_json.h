// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reprise/core/graph.h"
#include "reprise/formats/json.h"

namespace reprise {

// Format `reprise-graph`, version 1: docs/formats.md, docs/schemas/graph.schema.json.
// Values and ops keep the file's order. Throws InputError with the JSON path.
Graph read_graph_json(const JsonDocument& document);

// One value or op a line; what has its default value is left out. Reads back as the same graph.
std::string write_graph_json(const Graph& graph);

}  // namespace reprise
