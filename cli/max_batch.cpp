// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/max_batch.h"

#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "cli/graph_args.h"
#include "cli/interrupt.h"
#include "cli/limits.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "cli/words.h"
#include "reprise/core/batch.h"
#include "reprise/core/simulator.h"
#include "reprise/formats/plan_json.h"

namespace reprise::cli {
namespace {

struct MaxBatchArgs {
  GraphArgs graph;
  std::string budget;
  std::string fixed = "0";
  bool include_resident = false;
  std::string extra_cost = "forward";
  std::string solver = "auto";
  LimitArgs limits;
  std::string output;
  bool json = false;
};

// What is asked, worked out.
struct Question {
  Graph graph;   // at batch 1
  Bytes budget;  // as named
  Bytes fixed;   // of it
  std::optional<Cost> extra;
};

Bytes parse_size(const std::string& text, std::string_view option) {
  const bool is_size = text.find('%') == text.npos && text != "min";
  try {
    if (is_size) return *parse_budget(text, Bytes{0}).bytes;
  } catch (const InputError&) {
    // It speaks of budgets, of which shares and min are none here.
  }
  throw InputError(
      fmt::format("{} {}: want bytes or a size such as 6GiB or 1.5GB", option, in_quotes(text)));
}

// "forward": one more forward pass; "any"; "20%" of the base cost; or an amount of cost.
std::optional<Cost> parse_extra_cost(const std::string& text, const Graph& graph) {
  if (text == "any") return std::nullopt;
  if (text == "forward") {
    if (graph.has_phases()) return forward_cost(graph);
    throw InputError("--extra-cost forward: the graph has no phases; say a share (20%), or any");
  }
  const auto [number, unit] = number_and_unit(text).value_or(NumberAndUnit{0, "?"});
  const double factor = unit == "%" ? static_cast<double>(graph.base_cost().count()) / 100 : 1;
  if (!(unit.empty() || unit == "%") || !(number * factor < 9e18)) {
    throw InputError(fmt::format(
        "--extra-cost {}: want forward, any, a share such as 20%, or a cost", in_quotes(text)));
  }
  return Cost{static_cast<std::int64_t>(number * factor)};
}

Question question_of(const MaxBatchArgs& args) {
  const Bytes budget = parse_size(args.budget, "--budget");
  Bytes fixed = parse_size(args.fixed, "--fixed");
  Graph graph = args.graph.load();
  const std::optional<Cost> extra = parse_extra_cost(args.extra_cost, graph);
  if (args.include_resident) fixed += graph.resident_bytes();
  return {std::move(graph), budget, fixed, extra};
}

MaxBatch answer(const MaxBatchArgs& args, const Question& question) {
  const Solver& solver = find_solver(args.solver);
  const Interrupt interrupt;
  ProgressLine line("max-batch");
  Limits limits = args.limits.limits();
  limits.stop = interrupt.flag();
  limits.progress = [&](std::string_view doing) { line.show(doing); };
  return max_batch(solver, {question.graph, question.budget - question.fixed, question.extra},
                   limits);
}

Json to_json(const MaxBatchArgs& args, const Question& question, const MaxBatch& found) {
  const bool any = found.plan.has_value();
  const Cost base = any ? question.graph.base_cost() * found.batch : Cost{0};
  Json json;
  json["graph"] = question.graph.name();
  json["solver"] = args.solver;
  json["batch"] = found.batch;
  json["batch_bound"] = found.at_most;
  json["plain_batch"] = found.plain;
  json["budget_bytes"] = question.budget.count();
  json["fixed_bytes"] = question.fixed.count();
  json["peak_bytes"] = or_null(any ? std::optional(found.peak) : std::nullopt);
  json["cost"] = or_null(any ? std::optional(found.cost) : std::nullopt);
  json["base_cost"] = or_null(any ? std::optional(base) : std::nullopt);
  json["overhead"] = or_null(any ? over(found.cost, base) : std::nullopt);
  json["extra_cost_allowed"] = or_null(question.extra);
  json["batches_tried"] = found.tried;
  json["stopped"] = found.stopped;
  json["solve_seconds"] = found.seconds;
  json["seed"] = args.limits.seed;
  return json;
}

std::string report(const Question& question, const MaxBatch& found, const Paint& paint) {
  const Graph& graph = question.graph;
  const CostUnit unit = graph.cost_unit();
  std::string out = heading(graph, base_peak(graph), paint);
  out += line("batch", std::to_string(found.batch),
              found.batch == found.at_most
                  ? std::string("no plan fits a larger one (proven)")
                  : fmt::format("no plan fits more than {} (proven)", found.at_most));
  out += line("plain", std::to_string(found.plain), "the largest without computing again");
  out += line("budget", reprise::to_words(question.budget),
              question.fixed == Bytes{0}
                  ? ""
                  : fmt::format("{} of it fixed", reprise::to_words(question.fixed)));
  out += line("peak", reprise::to_words(found.peak), "");
  const auto overhead = over(found.cost, graph.base_cost() * found.batch);
  std::string remark = overhead ? percent(*overhead) : "";
  if (const auto allowed = question.extra
                               ? over(graph.base_cost() + *question.extra, graph.base_cost())
                               : std::nullopt) {
    remark += fmt::format("; at most {} was asked for", percent(*allowed));
  }
  return out + line(unit == CostUnit::ns ? "time" : "cost", to_words(found.cost, unit), remark);
}

ExitCode run(const MaxBatchArgs& args) {
  refuse_two_outputs(args.json, args.output);
  find_solver(args.solver);  // before a large graph is read
  args.limits.limits();
  const Question question = question_of(args);
  const MaxBatch found = answer(args, question);
  if (found.plan && !args.output.empty()) {
    write_text(args.output, write_plan_json(at_batch(question.graph, found.batch), *found.plan,
                                            args.solver, found.peak, found.cost));
  }
  if (args.json) print(to_json(args, question, found));
  if (found.stopped) {
    fmt::print(stderr, "reprise: max-batch was stopped before it was through: {}\n",
               found.plan ? "this is its best so far" : "it has no plan yet");
  }
  if (!found.plan) {
    fmt::print(stderr, "reprise: no batch fits {}, {} of it fixed{}\n", exactly(question.budget),
               exactly(question.fixed),
               found.at_most == 0
                   ? std::string(" (proven)")
                   : fmt::format("; no plan fits more than {} (proven)", found.at_most));
    return found.at_most == 0 ? infeasible : none_found;
  }
  if (!args.json) {
    std::FILE* const out = is_standard_output(args.output) ? stderr : stdout;
    fmt::print(out, "{}", report(question, found, Paint(out)));
  }
  return done;
}

}  // namespace

Action add_max_batch(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("max-batch", "Find the largest batch that fits a budget");
  const auto args = std::make_shared<MaxBatchArgs>();
  args->graph.add_to(verb);
  verb.add_option("--budget", args->budget, "Bytes, or a size (6GiB, 16GB)")->required();
  verb.add_option("--fixed", args->fixed, "Bytes of it that are taken whatever the batch");
  verb.add_flag("--include-resident", args->include_resident, "Resident bytes are fixed as well");
  verb.add_option("--extra-cost", args->extra_cost,
                  "At most: forward (the default: one more pass), 20%, a cost, any");
  verb.add_option("--solver", args->solver, "Which one (default auto): see reprise solvers");
  args->limits.add_to(verb, ", of each batch tried", "How many to use");
  verb.add_option("-o,--output", args->output,
                  "Write the plan, for the graph at that batch (- for stdout)")
      ->check(not_empty);
  verb.add_flag("--json", args->json, "Print one JSON object");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
