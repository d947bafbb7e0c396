// SPDX-License-Identifier: Apache-2.0
#include "cli/published.h"

namespace reprise::cli {
namespace {

struct Row {
  std::size_t ops;
  std::int64_t base_peak;  // bytes
  std::int64_t share;      // of it that the budget is, in hundredths
  PublishedFigures figures;
};

constexpr PublishedFigure kRanOut{};

PublishedFigure missed(double points, double seconds) { return {points, seconds, true}; }

const std::array kRows{
    // Moccasin's random layered graphs G1 and G3.
    Row{100, 46'319, 90, {{{{0.8, 18.5}}, {{0.8, 9.3}}, {{0.0, 11.7}}}}},
    Row{100, 46'319, 80, {{{{2.3, 22.7}}, {{2.3, 9.5}}, {{0.3, 11.5}}}}},
    Row{100, 46'319, 70, {{{}, {}, missed(2.2, 12.0)}}},
    Row{500, 284'439, 90, {{kRanOut, {{0.7, 1803}}, {{0.03, 21.0}}}}},
    Row{500, 284'439, 80, {{kRanOut, {{3.4, 1805}}, {{2.3, 20.9}}}}},
    Row{500, 284'439, 70, {{{}, {}, missed(4.8, 21.2)}}},
    // Checkmate's ResNet-50 at batch 256, costs profiled on a V100.
    Row{353, 38'059'356'160, 90, {{{{0.1, 434}}, {{0.2, 65}}, {{0.2, 10.9}}}}},
    Row{353, 38'059'356'160, 80, {{{{0.3, 485}}, {{0.3, 69}}, {{0.4, 10.9}}}}},
    Row{353, 38'059'356'160, 70, {{{}, {}, {{0.8, 11.0}}}}},
};

}  // namespace

PublishedFigures published(const Graph& graph, Bytes base_peak, const Budget& budget) {
  for (const Row& row : kRows) {
    const bool same_graph = graph.ops().size() == row.ops && base_peak == Bytes{row.base_peak};
    if (same_graph && budget.bytes == hundredths(base_peak, row.share)) return row.figures;
  }
  return {};
}

}  // namespace reprise::cli
