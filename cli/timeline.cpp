// SPDX-License-Identifier: Apache-2.0
#include "cli/timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "reprise/core/budget.h"

namespace reprise::cli {
namespace {

constexpr std::size_t kColumns = 64;
constexpr std::size_t kRows = 8;
constexpr std::size_t kEighths = 8;  // of a row, that a bar can end at
constexpr std::array<std::string_view, kEighths + 1> kBars{" ", "▁", "▂", "▃", "▄",
                                                           "▅", "▆", "▇", "█"};

// A run as the chart sees it.
struct Curve {
  std::vector<Bytes> columns;
  std::size_t peak_column = 0;
};

// A column shows the program's ops from `first_of` to before `last_of`: some, or a part of one.
std::size_t first_of(std::size_t column, std::size_t ops) { return column * ops / kColumns; }
std::size_t last_of(std::size_t column, std::size_t ops) {
  return std::max(first_of(column, ops) + 1, first_of(column + 1, ops));
}

// The first column that shows the op.
std::size_t column_of(std::size_t op, std::size_t ops) {
  std::size_t column = 0;
  while (last_of(column, ops) <= op) ++column;
  return column;
}

// A column shows the most that is in use while the program makes its part of the way.
Curve trace(const Graph& graph, const TimelineRun& run) {
  const std::size_t ops = graph.ops().size();
  std::vector<Bytes> by_progress(ops);
  OpSet has_run(ops, false);
  std::size_t different = 0;
  std::size_t peak_progress = 0;
  for (std::size_t i = 0; i < run.plan.steps.size(); ++i) {
    const Step step = run.plan.steps[i];
    if (step.kind() != StepKind::compute) continue;
    const std::size_t progress = std::min(different, ops - 1);
    by_progress[progress] = std::max(by_progress[progress], run.replay.in_use[i]);
    if (run.replay.peak_step == i) peak_progress = progress;
    if (!has_run[step.op()]) ++different;
    has_run[step.op()] = true;
  }
  Curve curve{std::vector<Bytes>(kColumns), column_of(peak_progress, ops)};
  for (std::size_t column = 0; column < kColumns; ++column) {
    for (std::size_t progress = first_of(column, ops); progress < last_of(column, ops);
         ++progress) {
      curve.columns[column] = std::max(curve.columns[column], by_progress[progress]);
    }
  }
  return curve;
}

// Where in the chart a size is, in eighths of a row from the bottom.
std::size_t height(Bytes bytes, Bytes top) {
  const double share = static_cast<double>(bytes.count()) / static_cast<double>(top.count());
  return static_cast<std::size_t>(std::lround(share * static_cast<double>(kRows * kEighths)));
}

// The row, counted from the bottom, that a line at `eighths` is drawn in.
std::size_t row_of(std::size_t eighths) { return eighths == 0 ? 0 : (eighths - 1) / kEighths; }

std::string axis_labels(const Graph& graph) {
  if (!graph.has_phases()) return "first op" + std::string(kColumns - 15, ' ') + "last op";
  std::string line;
  std::optional<Phase> before;
  for (const OpId op : graph.ops()) {
    const Phase phase = graph.phase(op);
    if (before && phase <= *before) continue;
    before = phase;
    const std::size_t column = column_of(op.index, graph.ops().size());
    const std::size_t at = line.empty() ? column : std::max(column, line.size() + 2);
    line.resize(at, ' ');
    line += to_string(phase);
  }
  return line;
}

}  // namespace

std::string draw_timeline(const Graph& graph, const TimelineRun& plan, const TimelineRun& plain,
                          std::optional<Bytes> budget, const Paint& paint) {
  if (graph.ops().size() == 0) return "";
  const Curve bars = trace(graph, plan);
  const Curve dots = trace(graph, plain);
  const Bytes top = std::max({plan.replay.peak, plain.replay.peak, Bytes{1}});
  const bool budget_shown = budget && *budget <= top;
  const std::size_t budget_row = budget_shown ? row_of(height(*budget, top)) : kRows;

  const std::string top_words = to_words(top);
  const std::string unit = top_words.substr(top_words.find(' ') + 1);
  const double top_number = std::strtod(top_words.c_str(), nullptr);
  std::string out = pad_left(unit, 6) + std::string(kColumns > 40 ? kColumns - 37 : 0, ' ') +
                    paint.dim("plain ┄┄") + "   " + paint.blue("plan ██");
  if (budget) out += "   " + paint.yellow("budget ──");
  out += '\n';
  for (std::size_t row = kRows; row-- > 0;) {
    const double label = top_number * static_cast<double>(row + 1) / static_cast<double>(kRows);
    std::string line = fmt::format("{:6.{}f} ┤", label, top_number >= 100 ? 0 : 2);
    for (std::size_t column = 0; column < kColumns; ++column) {
      const std::size_t bar = height(bars.columns[column], top);
      const std::size_t filled =
          bar <= row * kEighths ? 0 : std::min(bar - row * kEighths, kEighths);
      if (filled > 0) {
        line += column == bars.peak_column ? paint.red(kBars[filled]) : paint.blue(kBars[filled]);
      } else if (row_of(height(dots.columns[column], top)) == row &&
                 dots.columns[column] > Bytes{0}) {
        line += paint.dim("┄");
      } else {
        line += row == budget_row ? paint.yellow("─") : " ";
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  out += std::string(7, ' ') + "└";
  for (std::size_t column = 0; column < kColumns; ++column) {
    out += column == bars.peak_column ? paint.red("▲") : "─";
  }
  const std::string labels = axis_labels(graph);
  out += '\n' + std::string(8, ' ') + labels + '\n';
  return out;
}

}  // namespace reprise::cli
