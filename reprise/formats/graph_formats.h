// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reprise/core/graph.h"
#include "reprise/formats/files.h"
#include "reprise/formats/lower_set_text.h"

namespace reprise {

enum class GraphFormat : std::uint8_t { reprise_graph, node_link, lower_set, dot };

inline constexpr std::array kGraphFormats{GraphFormat::reprise_graph, GraphFormat::node_link,
                                          GraphFormat::lower_set, GraphFormat::dot};

std::string_view to_string(GraphFormat format);

// Reads a graph; where `format` is none, the content tells: a JSON object with a `format` is
// `reprise-graph`, one with `nodes` is node-link, a text that begins with a digit is lower-set
// text. Throws InputError, also for `dot`, which is written only.
Graph read_graph(const Text& text, std::optional<GraphFormat> format = std::nullopt,
                 const LowerSetOptions& options = {});

std::string write_graph(const Graph& graph, GraphFormat format);

}  // namespace reprise
