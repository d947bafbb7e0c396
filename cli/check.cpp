// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "cli/graph_args.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "cli/words.h"
#include "reprise/core/checker.h"
#include "reprise/core/simulator.h"

namespace reprise::cli {
namespace {

struct CheckArgs {
  GraphArgs graph;
  std::string plan;
  std::string budget;
  bool include_resident = false;
  bool json = false;
};

// What is wrong with the plan, or "".
std::string complaint(const Graph& graph, const LoadedPlan& loaded, const Verdict& verdict,
                      std::optional<Bytes> budget) {
  if (verdict.broken) return describe(graph, *verdict.broken);
  if (loaded.claimed_peak && *loaded.claimed_peak != verdict.peak) {
    return fmt::format("peak_bytes says {}, the plan takes {}", loaded.claimed_peak->count(),
                       verdict.peak.count());
  }
  if (loaded.claimed_cost && *loaded.claimed_cost != verdict.cost) {
    return fmt::format("cost says {}, the plan costs {}", loaded.claimed_cost->count(),
                       verdict.cost.count());
  }
  if (budget && verdict.peak > *budget) {
    return fmt::format("the plan takes {}, the budget on the peak is {}", exactly(verdict.peak),
                       exactly(*budget));
  }
  return "";
}

Json to_json(const Graph& graph, const LoadedPlan& loaded, const Verdict& verdict,
             const std::string& wrong) {
  Json json;
  json["right"] = wrong.empty();
  json["graph"] = graph.name();
  json["steps"] = loaded.plan.steps.size();
  json["peak_bytes"] = verdict.broken ? Json(nullptr) : Json(verdict.peak.count());
  json["cost"] = verdict.broken ? Json(nullptr) : Json(verdict.cost.count());
  json["broken_at_step"] = verdict.broken ? Json(verdict.broken->step) : Json(nullptr);
  json["message"] = wrong.empty() ? Json(nullptr) : Json(wrong);
  return json;
}

ExitCode run(const CheckArgs& args) {
  const Graph graph = args.graph.load();
  const LoadedPlan loaded = load_plan(args.plan, graph);
  std::optional<Bytes> budget;
  if (!args.budget.empty()) {
    budget = parse_budget(args.budget, base_peak(graph)).bytes;
    if (!budget) throw InputError("budget 'min': a plan can't be checked against it");
    if (args.include_resident) *budget -= graph.resident_bytes();
  }
  const Verdict verdict = check(graph, loaded.plan);
  const std::string wrong = complaint(graph, loaded, verdict, budget);
  if (args.json) print(to_json(graph, loaded, verdict, wrong));
  if (!wrong.empty()) {
    fmt::print(stderr, "{}: {}\n", loaded.name, wrong);
    return rule_broken;
  }
  if (!args.json) {
    fmt::print("right: {}, peak {}, cost {}\n", count(loaded.plan.steps.size(), "step"),
               exactly(verdict.peak), to_words(verdict.cost, graph.cost_unit()));
  }
  return done;
}

}  // namespace

Action add_check(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("check", "Say whether a plan is right, and what it takes");
  const auto args = std::make_shared<CheckArgs>();
  args->graph.add_to(verb);
  verb.add_option("PLAN", args->plan, "A plan file, or - for standard input")->required();
  verb.add_option("--budget", args->budget, "Refuse a plan whose peak is above it")
      ->check(not_empty);
  verb.add_flag("--include-resident", args->include_resident,
                "The budget bounds peak and resident bytes together");
  verb.add_flag("--json", args->json, "Print one JSON object");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
