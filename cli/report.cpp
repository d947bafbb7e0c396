// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "cli/timeline.h"
#include "reprise/core/error.h"
#include "reprise/core/lifetimes.h"
#include "reprise/formats/files.h"

namespace reprise::cli {
namespace {

// How often ops run beyond once.
struct Again {
  std::size_t ops = 0;       // that run more than once
  std::size_t computes = 0;  // beyond the first
};

Again count_again(const Graph& graph, const Plan& plan) {
  IdVector<OpId, std::size_t> runs(graph.ops().size(), 0);
  Again again;
  for (const Step step : plan.steps) {
    if (step.kind() != StepKind::compute) continue;
    const std::size_t before = runs[step.op()]++;
    if (before == 1) ++again.ops;
    if (before >= 1) ++again.computes;
  }
  return again;
}

std::string cost_line(const PlanReport& report, Cost cost) {
  const Graph& graph = report.graph;
  std::string remark;
  if (const auto overhead = over(cost, graph.base_cost())) {
    remark = percent(*overhead);
    const std::string_view plan = report.bound_scope == "any" ? "no plan" : "no plan in stages";
    if (cost == report.lower_bound) {
      remark += fmt::format("; {} needs less (proven)", plan);
    } else if (report.lower_bound > graph.base_cost()) {
      remark += fmt::format("; {} needs less than {} (proven)", plan,
                            percent(*over(*report.lower_bound, graph.base_cost())));
    }
  }
  return line(graph.cost_unit() == CostUnit::ns ? "time" : "cost",
              to_words(cost, graph.cost_unit()), remark);
}

std::string again_line(const PlanReport& report) {
  const Again again = count_again(report.graph, report.plan);
  if (again.ops == 0) return line("again", "none", "");
  const double times = static_cast<double>(again.computes) / static_cast<double>(again.ops);
  return line("again", count(again.ops, "op"),
              fmt::format("of {}, {:.1f} times on average", report.graph.ops().size(), times));
}

std::string alive_lines(const PlanReport& report, const Replay& replay, const Paint& paint) {
  constexpr std::size_t kShown = 6;
  if (!replay.peak_step) return "";
  const Graph& graph = report.graph;
  const OpId op = report.plan.steps[*replay.peak_step].op();
  std::vector<ValueId> alive = alive_during(graph, report.plan, *replay.peak_step);
  std::stable_sort(alive.begin(), alive.end(),
                   [&](ValueId a, ValueId b) { return graph.bytes(a) > graph.bytes(b); });
  std::string out =
      paint.bold("alive at the peak") +
      fmt::format(": {}, while {} runs\n", count(alive.size(), "value"), name_and_kind(graph, op));
  const auto entry = [&](Bytes bytes, std::string_view what) {
    out += fmt::format("{}{}   {}\n", pad_left(reprise::to_words(bytes), 19),
                       pad_left(share(bytes, replay.peak), 8), what);
  };
  Bytes rest;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    if (i < kShown) {
      entry(graph.bytes(alive[i]), graph.name(alive[i]));
    } else {
      rest += graph.bytes(alive[i]);
    }
  }
  if (alive.size() > kShown) entry(rest, fmt::format("{} more", alive.size() - kShown));
  if (graph.workspace(op) != Bytes{0}) entry(graph.workspace(op), "workspace of the op");
  return out;
}

}  // namespace

std::string share(Bytes part, Bytes whole) {
  if (whole == Bytes{0}) return "";
  const double points =
      100 * static_cast<double>(part.count()) / static_cast<double>(whole.count());
  return fmt::format("{:.{}f} %", points, points >= 9.95 ? 0 : 1);
}

std::string line(std::string_view label, std::string_view amount, std::string_view remark) {
  std::string text = pad_right(label, 8) + pad_left(amount, 11);
  if (!remark.empty()) text += "   " + std::string(remark);
  return text + '\n';
}

std::optional<double> over(Cost cost, Cost base) {
  if (base == Cost{0}) return std::nullopt;
  return static_cast<double>((cost - base).count()) / static_cast<double>(base.count());
}

Json or_null(std::optional<Bytes> bytes) { return bytes ? Json(bytes->count()) : Json(nullptr); }
Json or_null(std::optional<Cost> cost) { return cost ? Json(cost->count()) : Json(nullptr); }

void print(const Json& json) {
  // A path may be no UTF-8.
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void refuse_two_outputs(bool json, const std::string& output) {
  if (!json || !is_standard_output(output)) return;
  throw InputError("--json needs another --output: standard output can't take both");
}

std::string in_short(const Graph& graph, Bytes base_peak) {
  return fmt::format("{}; plain: {}, {}", count(graph.ops().size(), "op"),
                     reprise::to_words(base_peak), to_words(graph.base_cost(), graph.cost_unit()));
}

std::string heading(const Graph& graph, Bytes base_peak, const Paint& paint) {
  const std::string name = graph.name().empty() ? "graph" : graph.name();
  return fmt::format("{}   {}\n", paint.bold(name), in_short(graph, base_peak));
}

std::string to_words(const PlanReport& report, const Paint& paint) {
  const Graph& graph = report.graph;
  const Plan plain = base_run(graph);
  const Replay base = simulate(graph, plain);
  const Replay replay = simulate(graph, report.plan);

  std::string out = heading(graph, base.peak, paint);
  if (report.budget) {
    std::string remark = share(*report.budget, base.peak);
    if (!remark.empty()) remark += " of the plain peak";
    if (report.resident_in_budget != Bytes{0}) {
      remark += fmt::format(", {} of it for resident values",
                            reprise::to_words(report.resident_in_budget));
    }
    out += line("budget", reprise::to_words(*report.budget), remark);
  }
  out += line(
      "peak", reprise::to_words(replay.peak),
      replay.peak_step
          ? "while " + name_and_kind(graph, report.plan.steps[*replay.peak_step].op()) + " runs"
          : "");
  if (graph.resident_bytes() != Bytes{0}) {
    out += line("resident", reprise::to_words(graph.resident_bytes()), "beside it, always there");
  }
  out += cost_line(report, replay.cost);
  out += again_line(report);
  std::optional<Bytes> line_at = report.budget;
  if (line_at) *line_at -= report.resident_in_budget;
  const std::string timeline =
      draw_timeline(graph, {report.plan, replay}, {plain, base}, line_at, paint);
  if (!timeline.empty()) out += '\n' + timeline + '\n';
  return out + alive_lines(report, replay, paint);
}

}  // namespace reprise::cli
