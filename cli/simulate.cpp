// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "cli/graph_args.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "cli/words.h"
#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"

namespace reprise::cli {
namespace {

struct SimulateArgs {
  GraphArgs graph;
  std::string plan;
  std::string budget;
  bool json = false;
};

Json to_json(const Graph& graph, const Plan& plan, std::optional<Bytes> budget) {
  const Replay replay = simulate(graph, plan);
  Json alive = Json::array();
  if (replay.peak_step) {
    for (const ValueId value : alive_during(graph, plan, *replay.peak_step)) {
      alive.push_back({{"name", graph.name(value)}, {"bytes", graph.bytes(value).count()}});
    }
  }
  Json in_use = Json::array();
  for (const Bytes bytes : replay.in_use) in_use.push_back(bytes.count());

  Json json;
  json["graph"] = graph.name();
  json["steps"] = plan.steps.size();
  json["budget_bytes"] = or_null(budget);
  json["peak_bytes"] = replay.peak.count();
  json["peak_step"] = or_null(replay.peak_step);
  json["peak_op"] =
      replay.peak_step ? Json(graph.name(plan.steps[*replay.peak_step].op())) : Json(nullptr);
  json["resident_bytes"] = graph.resident_bytes().count();
  json["cost"] = replay.cost.count();
  json["base_cost"] = graph.base_cost().count();
  json["overhead"] = or_null(over(replay.cost, graph.base_cost()));
  json["base_peak_bytes"] = base_peak(graph).count();
  json["alive_at_peak"] = std::move(alive);
  json["bytes_in_use"] = std::move(in_use);
  return json;
}

ExitCode run(const SimulateArgs& args) {
  const Graph graph = args.graph.load();
  const LoadedPlan loaded =
      args.plan.empty() ? LoadedPlan{"", base_run(graph), {}, {}} : load_plan(args.plan, graph);
  const Plan& plan = loaded.plan;
  if (const Verdict verdict = check(graph, plan); verdict.broken) {
    fmt::print(stderr, "{}: {}\n", loaded.name, describe(graph, *verdict.broken));
    return rule_broken;
  }
  std::optional<Bytes> budget;
  if (!args.budget.empty()) {
    budget = parse_budget(args.budget, base_peak(graph)).bytes;
    if (!budget) throw InputError("budget 'min': there is no line to draw");
  }
  if (args.json) {
    print(to_json(graph, plan, budget));
    return done;
  }
  fmt::print("{}", to_words(PlanReport{graph, plan, budget, Bytes{0}, std::nullopt}, Paint()));
  return done;
}

}  // namespace

Action add_simulate(CLI::App& app) {
  CLI::App& verb =
      *app.add_subcommand("simulate", "Show what a plan holds and costs, step by step");
  const auto args = std::make_shared<SimulateArgs>();
  args->graph.add_to(verb);
  verb.add_option("PLAN", args->plan, "A plan file; left out, the plain run");
  verb.add_option("--budget", args->budget, "Draw this line")->check(not_empty);
  verb.add_flag("--json", args->json, "Print one JSON object, with the bytes at each step");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
