// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/graph_args.h"
#include "cli/interrupt.h"
#include "cli/limits.h"
#include "cli/runs.h"
#include "cli/verbs.h"
#include "cli/words.h"
#include "reprise/core/simulator.h"

namespace reprise::cli {
namespace {

constexpr double kShareInTurn = 1.0 / 3;  // of the time limit, where there is a plan to begin with

struct SweepArgs {
  GraphArgs graph;
  std::size_t points = 10;
  std::string solvers = "auto";
  LimitArgs limits;
  std::string output;
  bool json = false;
};

// One solver's runs: for the smallest peak, and at each budget.
struct Curve {
  const Solver* solver;
  std::optional<Run> smallest;
  std::vector<std::optional<Run>> runs;
};

struct Sweep {
  const Graph& graph;
  Bytes base_peak;
  std::vector<Bytes> budgets;
  std::vector<Curve> curves;
};

// Those that are named have to support the graph; of all, those that do.
std::vector<const Solver*> solvers_for(const Graph& graph, const std::string& names) {
  std::vector<const Solver*> chosen;
  for (const Solver* solver : parse_solvers(names)) {
    const std::string reason = solver->supports({graph, Budget{}});
    if (reason.empty()) {
      chosen.push_back(solver);
    } else if (names != "all") {
      throw InputError(fmt::format("solver '{}' {}", solver->name, reason));
    }
  }
  return chosen;
}

// One budget after the other, from the smallest on: each run begins with the plan of the one
// before, which fits, and so gets by with less time.
std::vector<std::optional<Run>> run_in_turn(std::span<const Task> tasks, const Run* smallest,
                                            const Limits& limits, int threads, RunStore& store) {
  std::vector<std::optional<Run>> runs;
  std::shared_ptr<const Plan> start = smallest != nullptr ? smallest->plan : nullptr;
  for (Task task : tasks) {
    Limits own = limits;
    if (start && limits.time) own.time = *limits.time * kShareInTurn;
    task.start = start;
    runs.push_back(run_missing({&task, 1}, own, threads, store, "sweep").front());
    if (runs.back() && runs.back()->plan) start = runs.back()->plan;
  }
  return runs;
}

// Runs each solver for the smallest peak, and then at budgets from the smallest of these peaks to
// the plain peak, which no plan has to go beyond.
Sweep run_sweep(const SweepArgs& args, const Graph& graph,
                const std::vector<const Solver*>& solvers, const Limits& limits, RunStore& store) {
  Sweep sweep{graph, base_peak(graph), {}, {}};
  std::vector<Task> tasks;
  const auto task = [&](const Solver* solver, Budget budget) {
    return Task{&graph, solver, budget, limits.seed, limits.techniques};
  };
  for (const Solver* solver : solvers) tasks.push_back(task(solver, Budget{}));
  const auto smallest = run_missing(tasks, limits, args.limits.threads, store, "sweep");
  Bytes least = sweep.base_peak;
  for (const std::optional<Run>& run : smallest) {
    if (run && run->peak) least = std::min(least, *run->peak);
  }
  sweep.budgets = even_budgets(least, sweep.base_peak, args.points);

  for (std::size_t i = 0; i < solvers.size(); ++i) {
    tasks.clear();
    for (const Bytes budget : sweep.budgets) tasks.push_back(task(solvers[i], Budget{budget}));
    const bool in_turn = solvers[i]->name == "auto";
    const Run* const first = smallest[i] ? &*smallest[i] : nullptr;
    sweep.curves.push_back({solvers[i], smallest[i],
                            in_turn
                                ? run_in_turn(tasks, first, limits, args.limits.threads, store)
                                : run_missing(tasks, limits, args.limits.threads, store, "sweep")});
  }
  return sweep;
}

// Lets the plans of each curve serve all budgets that they fit.
void share_along_curves(Sweep& sweep) {
  for (Curve& curve : sweep.curves) {
    std::vector<Budget> budgets;
    std::vector<Run> runs;
    std::vector<Run*> shared;
    const auto add = [&](std::optional<Run>& run, Budget budget) {
      if (!run) return;
      budgets.push_back(budget);
      runs.push_back(*run);
      shared.push_back(&*run);
    };
    add(curve.smallest, Budget{});
    for (std::size_t i = 0; i < curve.runs.size(); ++i) add(curve.runs[i], {sweep.budgets[i]});
    share_plans(budgets, runs);
    for (std::size_t i = 0; i < runs.size(); ++i) *shared[i] = std::move(runs[i]);
  }
}

void print_table(const Sweep& sweep, const Paint& paint) {
  const auto width = [](const Curve& curve) {
    return std::max<std::size_t>(curve.solver->name.size(), 10) + 3;
  };
  const Graph& graph = sweep.graph;
  fmt::print("{}", heading(graph, sweep.base_peak, paint));
  std::string header = pad_left("budget", 10) + pad_left("share", 9);
  for (const Curve& curve : sweep.curves) header += pad_left(curve.solver->name, width(curve));
  fmt::print("{}\n", header);
  for (std::size_t i = 0; i < sweep.budgets.size(); ++i) {
    std::string line = pad_left(reprise::to_words(sweep.budgets[i]), 10);
    line += pad_left(share(sweep.budgets[i], sweep.base_peak), 9);
    for (const Curve& curve : sweep.curves) {
      const std::optional<Run>& run = curve.runs[i];
      line += pad_left(run ? overhead_words(*run, graph) : "not run", width(curve));
    }
    fmt::print("{}\n", line);
  }
}

void print_json(const Sweep& sweep) {
  Json json;
  json["graph"] = sweep.graph.name();
  json["base_peak_bytes"] = sweep.base_peak.count();
  json["base_cost"] = sweep.graph.base_cost().count();
  json["smallest_peak_bound"] = smallest_peak_bound(sweep.graph).bytes.count();
  json["points"] = Json::array();
  for (const Curve& curve : sweep.curves) {
    for (std::size_t i = 0; i < sweep.budgets.size(); ++i) {
      if (!curve.runs[i]) continue;
      Json entry;
      entry["solver"] = curve.solver->name;
      entry["budget_bytes"] = sweep.budgets[i].count();
      add_fields(entry, *curve.runs[i], sweep.graph);
      json["points"].push_back(std::move(entry));
    }
  }
  json["not_run"] = sweep.curves.size() * sweep.budgets.size() - json["points"].size();
  print(json);
}

ExitCode run(const SweepArgs& args) {
  Limits limits = args.limits.limits();
  parse_solvers(args.solvers);  // before a large graph is read
  const Graph graph = args.graph.load();
  const auto solvers = solvers_for(graph, args.solvers);
  RunStore store(args.output);
  const Interrupt interrupt;
  limits.stop = interrupt.flag();
  Sweep points = run_sweep(args, graph, solvers, limits, store);
  share_along_curves(points);
  if (args.json) {
    print_json(points);
  } else {
    print_table(points, Paint());
  }
  std::vector<std::optional<Run>> runs;
  for (const Curve& curve : points.curves) {
    runs.push_back(curve.smallest);
    runs.insert(runs.end(), curve.runs.begin(), curve.runs.end());
  }
  return ending("sweep", runs, !args.output.empty());
}

}  // namespace

Action add_sweep(CLI::App& app) {
  CLI::App& verb =
      *app.add_subcommand("sweep", "Find plans at budgets from the smallest to the plain peak");
  const auto args = std::make_shared<SweepArgs>();
  args->graph.add_to(verb);
  verb.add_option("--points", args->points, "How many budgets, 1 to 10000 (default 10)")
      ->check(CLI::Range(1, 10000).description(""));
  verb.add_option("--solvers", args->solvers, "Some, as auto,ogc, or all (default auto)")
      ->check(not_empty);
  args->limits.add_to(verb, ", of each run", "How many runs at a time");
  verb.add_option("-o,--output", args->output,
                  "Keep runs in this file as they are done, and repeat none of them")
      ->check(not_empty);
  verb.add_flag("--json", args->json, "Print one JSON object");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
