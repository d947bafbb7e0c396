// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "cli/graph_args.h"
#include "cli/interrupt.h"
#include "cli/limits.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "cli/words.h"
#include "reprise/core/checker.h"
#include "reprise/core/simulator.h"
#include "reprise/formats/plan_json.h"
#include "reprise/solvers/solver.h"

namespace reprise::cli {
namespace {

struct PlanArgs {
  GraphArgs graph;
  std::string budget;
  bool include_resident = false;
  std::string solver = "auto";
  LimitArgs limits;
  std::string objective = "time";
  std::string start;
  std::vector<std::string> keep;
  std::vector<std::string> never_again;
  std::string output;
  bool json = false;
};

template <class Id, class Ids, class Find>
std::vector<Id> find_all(const Graph& graph, const std::vector<std::string>& names, Ids ids,
                         std::string_view what, Find find) {
  std::vector<Id> found;
  for (const std::string& name : names) {
    if (const std::optional<Id> id = find(name)) {
      found.push_back(*id);
      continue;
    }
    std::vector<std::string_view> known;
    for (const Id id : ids) known.push_back(graph.name(id));
    throw InputError(
        fmt::format("unknown {} {}{}", what, in_quotes(name), did_you_mean(name, known)));
  }
  return found;
}

Graph with_pins(Graph graph, const PlanArgs& args) {
  if (args.keep.empty() && args.never_again.empty()) return graph;
  const NameIndex names(graph);
  const auto keep = find_all<ValueId>(graph, args.keep, graph.values(), "value",
                                      [&](const std::string& name) { return names.value(name); });
  const auto never_again = find_all<OpId>(graph, args.never_again, graph.ops(), "op",
                                          [&](const std::string& name) { return names.op(name); });
  return graph.pinned(keep, never_again);
}

Plan load_start(const std::string& path, const Graph& graph) {
  LoadedPlan start = load_plan(path, graph);
  if (const Verdict verdict = check(graph, start.plan); verdict.broken) {
    throw InputError(fmt::format("{}: {}", start.name, describe(graph, *verdict.broken)));
  }
  return std::move(start.plan);
}

Json to_json(const PlanArgs& args, const Graph& graph, const Outcome& outcome,
             std::optional<Bytes> budget, Bytes base_peak) {
  const bool found = outcome.plan.has_value();
  const auto cost = found ? std::optional(outcome.cost) : std::nullopt;
  Json json;
  json["status"] = to_string(outcome.status);
  json["solver"] = args.solver;
  json["graph"] = graph.name();
  json["ops"] = graph.ops().size();
  json["values"] = graph.values().size();
  json["budget_bytes"] = or_null(budget);
  json["peak_bytes"] = or_null(found ? std::optional(outcome.peak) : std::nullopt);
  json["resident_bytes"] = graph.resident_bytes().count();
  json["cost"] = or_null(cost);
  json["base_cost"] = graph.base_cost().count();
  json["overhead"] = or_null(cost ? over(*cost, graph.base_cost()) : std::nullopt);
  json["base_peak_bytes"] = base_peak.count();
  json["lower_bound"] = or_null(outcome.lower_bound);
  json["bound_scope"] = outcome.lower_bound ? Json(outcome.bound_scope) : Json(nullptr);
  json["gap"] =
      or_null(cost && outcome.lower_bound ? over(*cost, *outcome.lower_bound) : std::nullopt);
  json["smallest_peak_bytes"] = or_null(outcome.smallest_peak);
  json["smallest_peak_bound"] = outcome.smallest_peak_bound.bytes.count();
  json["solve_seconds"] = outcome.seconds;
  json["seed"] = args.limits.seed;
  return json;
}

// Why there is no plan: the budget, what binds, what is proven and what was reached.
std::string no_plan_words(const PlanArgs& args, const Graph& graph, const Outcome& outcome,
                          std::optional<Bytes> budget, Bytes resident) {
  std::string named = budget ? exactly(*budget) : "min";
  if (resident != Bytes{0}) {
    named += fmt::format(", {} of it for resident values,", exactly(resident));
  }
  const PeakBound& bound = outcome.smallest_peak_bound;
  if (budget && resident > *budget) {
    return fmt::format("budget {} can't be met: resident values alone take {}", exactly(*budget),
                       exactly(resident));
  }
  std::string binding = "what is kept at the end";
  if (bound.op) {
    binding = in_quotes(graph.name(*bound.op));
    binding += bound.beside == Bytes{0} ? " alone" : " with what has to be kept beside it";
  }
  const std::string best = outcome.smallest_peak
                               ? "best plan found: " + exactly(*outcome.smallest_peak)
                               : std::string("no plan was found before the limit");
  if (outcome.status == Status::infeasible) {
    return fmt::format("budget {} can't be met: {} needs {}; {}", named, binding,
                       exactly(bound.bytes), best);
  }
  return fmt::format("budget {} was not met by {}{}: {}; proven: {} needs {}", named, args.solver,
                     outcome.too_large ? ", for which the graph is too large" : "", best, binding,
                     exactly(bound.bytes));
}

// What is asked, worked out. Shares and the report are of the graph as given: pins ask more of
// plans, they do not change the measure.
struct Question {
  Graph given;
  Graph graph;  // with pins
  Bytes base_peak;
  Budget named;    // as the user put it
  Bytes resident;  // counted in it
  Budget budget;   // on the peak
  std::optional<Plan> start;
};

Question question_of(const PlanArgs& args) {
  Graph given = args.graph.load();
  Graph graph = with_pins(given, args);
  Question question{std::move(given), std::move(graph), {}, {}, {}, {}, {}};
  question.base_peak = base_peak(question.given);
  question.named = parse_budget(args.budget, question.base_peak);
  question.budget = question.named;
  if (args.include_resident && question.budget.bytes) {
    question.resident = question.graph.resident_bytes();
    *question.budget.bytes -= question.resident;
  }
  if (!args.start.empty()) question.start = load_start(args.start, question.graph);
  return question;
}

// Shows progress while the solver runs, and nothing of it after; Ctrl-C ends it with its best.
Outcome answer(const PlanArgs& args, const Question& question) {
  const Solver& solver = find_solver(args.solver);
  const Interrupt interrupt;
  ProgressLine line(solver.name);
  Limits limits = args.limits.limits();
  limits.stop = interrupt.flag();
  limits.progress = [&](std::string_view doing) { line.show(doing); };
  const Objective objective = args.objective == "memory" ? Objective::memory : Objective::time;
  const Plan* const start = question.start ? &*question.start : nullptr;
  return solve(solver, {question.graph, question.budget, objective, start}, limits);
}

ExitCode run(const PlanArgs& args) {
  refuse_two_outputs(args.json, args.output);
  find_solver(args.solver);  // before a large graph is read
  args.limits.limits();
  const Question question = question_of(args);
  const Outcome outcome = answer(args, question);

  if (outcome.plan && !args.output.empty()) {
    write_text(args.output, write_plan_json(question.given, *outcome.plan, args.solver,
                                            outcome.peak, outcome.cost));
  }
  if (args.json) {
    print(to_json(args, question.graph, outcome, question.named.bytes, question.base_peak));
  }
  if (!outcome.plan) {
    fmt::print(
        stderr, "reprise: {}\n",
        no_plan_words(args, question.graph, outcome, question.named.bytes, question.resident));
    return outcome.status == Status::infeasible ? infeasible : none_found;
  }
  if (outcome.stopped) {
    fmt::print(stderr, "reprise: {} {}: this is its best so far\n", args.solver,
               outcome.too_large ? "gave up, the graph is too large for it"
                                 : "was stopped before it was through");
  }
  if (!args.json) {
    std::FILE* const out = is_standard_output(args.output) ? stderr : stdout;
    fmt::print(out, "{}",
               to_words(PlanReport{question.given, *outcome.plan, question.named.bytes,
                                   question.resident, outcome.lower_bound, outcome.bound_scope},
                        Paint(out)));
  }
  return done;
}

}  // namespace

Action add_plan(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("plan", "Find the cheapest plan inside a budget");
  const auto args = std::make_shared<PlanArgs>();
  args->graph.add_to(verb);
  verb.add_option("--budget", args->budget,
                  "Bytes, a size (6GiB, 1.5GB), a share of the plain peak (50%), or min")
      ->required();
  verb.add_flag("--include-resident", args->include_resident,
                "The budget bounds peak and resident bytes together");
  verb.add_option("--solver", args->solver, "Which one (default auto): see reprise solvers");
  args->limits.add_to(verb, "", "How many to use");
  verb.add_option("--objective", args->objective, "What a two-minded solver minimises")
      ->check(one_of({"time", "memory"}));
  verb.add_option("--start", args->start, "A plan file to improve on")->check(not_empty);
  verb.add_option("--keep", args->keep, "A value that has to be there at the end, as results are")
      ->expected(1)
      ->take_all();
  verb.add_option("--never-again", args->never_again, "An op that may run once only")
      ->expected(1)
      ->take_all();
  verb.add_option("-o,--output", args->output, "Write the plan to this file (- for stdout)")
      ->check(not_empty);
  verb.add_flag("--json", args->json, "Print one JSON object");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
