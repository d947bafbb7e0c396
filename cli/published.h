// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "reprise/core/budget.h"
#include "reprise/core/graph.h"

namespace reprise::cli {

// What one method was published to reach on a graph at a budget.
struct PublishedFigure {
  std::optional<double> points;  // of overhead, hundredths of plain; none: it ran out of time
  double seconds = 0;
  bool missed = false;  // its plan takes more than the budget
};

inline constexpr std::array<std::string_view, 3> kPublishedMethods{"Checkmate", "Moccasin",
                                                                   "FastSA"};

// By method; none where nothing is published. Checkmate's integer program (MLSys'20) and Moccasin
// (ICML'23) keep the program order, FastSA (2023) does not; all are as in FastSA's Table 1.
using PublishedFigures = std::array<std::optional<PublishedFigure>, kPublishedMethods.size()>;

// What there is on this graph at this budget. Graphs are told by how many ops they have and what
// their plain run takes, so that a file may have any name.
PublishedFigures published(const Graph& graph, Bytes base_peak, const Budget& budget);

}  // namespace reprise::cli
