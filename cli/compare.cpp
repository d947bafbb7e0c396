// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/graph_args.h"
#include "cli/interrupt.h"
#include "cli/limits.h"
#include "cli/runs.h"
#include "cli/subjects.h"
#include "cli/verbs.h"
#include "cli/words.h"

namespace reprise::cli {
namespace {

struct CompareArgs {
  std::vector<std::string> paths;
  ReadArgs read;
  std::string budgets = "80%,60%,40%";
  std::string solvers = "all";
  LimitArgs limits;
  std::string output;
  bool markdown = false;
  bool csv = false;
  bool json = false;
};

// Every solver on every graph at every budget.
struct Comparison {
  std::vector<Subject> subjects;
  std::vector<std::string> budgets;  // as named
  std::vector<const Solver*> solvers;
  std::vector<Task> tasks;  // by subject, then budget, then solver
  std::vector<std::optional<Run>> runs;

  std::size_t index(std::size_t subject, std::size_t budget, std::size_t solver) const {
    return (subject * budgets.size() + budget) * solvers.size() + solver;
  }
};

// One quantity of a run, where it has a plan.
using Measure = std::optional<double> (*)(const Run&);

std::optional<double> cost_of(const Run& run) {
  return run.cost ? std::optional(static_cast<double>(run.cost->count())) : std::nullopt;
}
std::optional<double> peak_of(const Run& run) {
  return run.peak ? std::optional(static_cast<double>(run.peak->count())) : std::nullopt;
}

Comparison question_of(const CompareArgs& args, const Limits& limits) {
  Comparison comparison;
  comparison.solvers = parse_solvers(args.solvers);
  comparison.budgets = split_list(args.budgets, "budgets");
  for (const std::string& budget : comparison.budgets) parse_budget(budget, Bytes{0});
  comparison.subjects = load_subjects(args.paths, args.read);
  for (const Subject& subject : comparison.subjects) {
    for (const std::string& budget : comparison.budgets) {
      for (const Solver* solver : comparison.solvers) {
        comparison.tasks.push_back({&subject.graph, solver, parse_budget(budget, subject.base_peak),
                                    limits.seed, limits.techniques});
      }
    }
  }
  return comparison;
}

// How many times the smallest over all solvers, at the same graph and budget. Nothing where a
// budget asks for the smallest peak: costs at different peaks are no race.
std::optional<double> against_best(const Comparison& comparison, std::size_t run, Measure measure) {
  const std::size_t solvers = comparison.solvers.size();
  const auto amount = [&](std::size_t i) {
    return comparison.runs[i] ? measure(*comparison.runs[i]) : std::nullopt;
  };
  const std::optional<double> own = amount(run);
  if (!own || !comparison.tasks[run].budget.bytes) return std::nullopt;
  double best = *own;
  for (std::size_t i = run - run % solvers; i < run - run % solvers + solvers; ++i) {
    best = std::min(best, amount(i).value_or(best));
  }
  if (*own == best) return 1;
  return best == 0 ? std::nullopt : std::optional(*own / best);
}

// One solver over all graphs and budgets.
struct Summary {
  std::size_t runs = 0;
  std::size_t plans = 0;
  std::optional<double> cost;  // against the best, a geometric mean where it has a plan
  std::optional<double> peak;  // likewise
  double seconds = 0;          // of all its runs
};

std::optional<double> geometric_mean(const Comparison& comparison, std::size_t solver,
                                     Measure measure) {
  double logs = 0;
  std::size_t count = 0;
  for (std::size_t i = solver; i < comparison.runs.size(); i += comparison.solvers.size()) {
    const std::optional<double> ratio = against_best(comparison, i, measure);
    if (!ratio) continue;
    logs += std::log(*ratio);
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(std::exp(logs / static_cast<double>(count)));
}

Summary summary_of(const Comparison& comparison, std::size_t solver) {
  Summary summary;
  summary.cost = geometric_mean(comparison, solver, cost_of);
  summary.peak = geometric_mean(comparison, solver, peak_of);
  for (std::size_t i = solver; i < comparison.runs.size(); i += comparison.solvers.size()) {
    const std::optional<Run>& run = comparison.runs[i];
    if (!run) continue;
    ++summary.runs;
    if (run->cost) ++summary.plans;
    summary.seconds += run->seconds;
  }
  return summary;
}

std::string ratio_words(std::optional<double> ratio) {
  return ratio ? fmt::format("{:.4f}", *ratio) : "–";
}

// Why there is no plan.
std::string remark(const Run& run) {
  if (!run.refusal.empty()) return run.refusal;
  if (run.cost) return "";
  if (run.status == Status::infeasible) return "no plan fits (proven)";
  return run.smallest_peak ? "its smallest peak is " + reprise::to_words(*run.smallest_peak)
                           : std::string("nothing found before the limit");
}

std::size_t name_width(const Comparison& comparison) {
  std::size_t widest = 0;
  for (const Solver* solver : comparison.solvers) widest = std::max(widest, solver->name.size());
  return widest;
}

std::string table_line(const Comparison& comparison, const Subject& subject, std::size_t solver,
                       const std::optional<Run>& run) {
  std::string line = pad_right(comparison.solvers[solver]->name, name_width(comparison));
  if (!run) return line + pad_left("not run", 12) + '\n';
  const bool ran = run->refusal.empty();
  line += pad_left(overhead_words(*run, subject.graph), 12);
  line += pad_left(run->peak ? reprise::to_words(*run->peak) : "", 12);
  line += pad_left(ran ? fmt::format("{:.3f}", run->seconds) : "", 12);
  if (const std::string words = remark(*run); !words.empty()) line += "   " + words;
  return line + '\n';
}

void print_table(const Comparison& comparison, const Paint& paint) {
  const std::size_t names = name_width(comparison);
  for (std::size_t s = 0; s < comparison.subjects.size(); ++s) {
    const Subject& subject = comparison.subjects[s];
    for (std::size_t b = 0; b < comparison.budgets.size(); ++b) {
      const std::optional<Bytes> bytes = comparison.tasks[comparison.index(s, b, 0)].budget.bytes;
      fmt::print("{}   {}; at {}{}\n", paint.bold(subject.label),
                 in_short(subject.graph, subject.base_peak), comparison.budgets[b],
                 bytes ? ", " + reprise::to_words(*bytes) : "");
      fmt::print("{}{}{}{}\n", pad_right("", names), pad_left("overhead", 12), pad_left("peak", 12),
                 pad_left("seconds", 12));
      for (std::size_t i = 0; i < comparison.solvers.size(); ++i) {
        const std::optional<Run>& run = comparison.runs[comparison.index(s, b, i)];
        fmt::print("{}", table_line(comparison, subject, i, run));
      }
      fmt::print("\n");
    }
  }
  fmt::print("{}: cost and peak against the best (geometric means), seconds in all\n",
             paint.bold("all runs"));
  fmt::print("{}{}{}{}{}\n", pad_right("", names), pad_left("plans", 12), pad_left("cost", 12),
             pad_left("peak", 12), pad_left("seconds", 12));
  for (std::size_t i = 0; i < comparison.solvers.size(); ++i) {
    const Summary all = summary_of(comparison, i);
    fmt::print("{}{}{}{}{}\n", pad_right(comparison.solvers[i]->name, names),
               pad_left(fmt::format("{} of {}", all.plans, all.runs), 12),
               pad_left(ratio_words(all.cost), 12), pad_left(ratio_words(all.peak), 12),
               pad_left(fmt::format("{:.3f}", all.seconds), 12));
  }
}

// Tables of overheads, a graph each, the best of a budget in bold.
void print_markdown(const Comparison& comparison) {
  for (std::size_t s = 0; s < comparison.subjects.size(); ++s) {
    const Subject& subject = comparison.subjects[s];
    fmt::print("**{}**: {}\n\n", for_markdown(subject.label),
               in_short(subject.graph, subject.base_peak));
    fmt::print("| solver | {} | seconds |\n|---|{}--:|\n", fmt::join(comparison.budgets, " | "),
               fmt::join(std::vector<std::string>(comparison.budgets.size(), "--:|"), ""));
    for (std::size_t i = 0; i < comparison.solvers.size(); ++i) {
      fmt::print("| {} |", comparison.solvers[i]->name);
      double seconds = 0;
      for (std::size_t b = 0; b < comparison.budgets.size(); ++b) {
        const std::size_t at = comparison.index(s, b, i);
        const std::optional<Run>& run = comparison.runs[at];
        const bool best = against_best(comparison, at, cost_of) == 1.0;
        const std::string mark = best ? "**" : "";
        if (run) seconds += run->seconds;
        fmt::print(" {}{}{} |", mark, run ? overhead_words(*run, subject.graph) : "not run", mark);
      }
      fmt::print(" {:.2f} |\n", seconds);
    }
    fmt::print("\n");
  }
  fmt::print(
      "All runs: cost and peak against the best (geometric means), seconds in all.\n\n"
      "| solver | plans | cost | peak | seconds |\n|---|--:|--:|--:|--:|\n");
  for (std::size_t i = 0; i < comparison.solvers.size(); ++i) {
    const Summary all = summary_of(comparison, i);
    fmt::print("| {} | {} of {} | {} | {} | {:.2f} |\n", comparison.solvers[i]->name, all.plans,
               all.runs, ratio_words(all.cost), ratio_words(all.peak), all.seconds);
  }
}

// One object a run, in the order of the tasks.
Json runs_json(const Comparison& comparison) {
  Json list = Json::array();
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    if (!comparison.runs[i]) continue;
    const std::size_t solver = i % comparison.solvers.size();
    const std::size_t budget = i / comparison.solvers.size() % comparison.budgets.size();
    const Subject& subject =
        comparison.subjects[i / comparison.solvers.size() / comparison.budgets.size()];
    Json entry;
    entry["file"] = subject.file;
    entry["graph"] = subject.graph.name();
    entry["solver"] = comparison.solvers[solver]->name;
    entry["budget"] = comparison.budgets[budget];
    entry["budget_bytes"] = or_null(comparison.tasks[i].budget.bytes);
    add_fields(entry, *comparison.runs[i], subject.graph);
    entry["cost_over_best"] = or_null(against_best(comparison, i, cost_of));
    entry["base_peak_bytes"] = subject.base_peak.count();
    entry["base_cost"] = subject.graph.base_cost().count();
    const std::string reason = remark(*comparison.runs[i]);
    entry["reason"] = reason.empty() ? Json(nullptr) : Json(reason);
    list.push_back(std::move(entry));
  }
  return list;
}

void print_json(const Comparison& comparison) {
  Json json;
  json["runs"] = runs_json(comparison);
  json["solvers"] = Json::array();
  for (std::size_t i = 0; i < comparison.solvers.size(); ++i) {
    const Summary all = summary_of(comparison, i);
    Json entry;
    entry["solver"] = comparison.solvers[i]->name;
    entry["runs"] = all.runs;
    entry["plans"] = all.plans;
    entry["cost_over_best"] = or_null(all.cost);
    entry["peak_over_best"] = or_null(all.peak);
    entry["solve_seconds"] = all.seconds;
    json["solvers"].push_back(std::move(entry));
  }
  json["not_run"] = comparison.runs.size() - json["runs"].size();
  print(json);
}

// The fields of the JSON objects, with what is null left empty.
void print_csv(const Comparison& comparison) {
  const auto cell = [](const Json& value) {
    if (value.is_null()) return std::string();
    if (!value.is_string()) return value.dump();
    auto text = value.get<std::string>();
    if (text.find_first_of(",\"\r\n") == text.npos) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + '"';
  };
  bool first = true;
  for (const Json& run : runs_json(comparison)) {
    std::vector<std::string> names;
    std::vector<std::string> cells;
    for (const auto& [name, value] : run.items()) {
      names.push_back(name);
      cells.push_back(cell(value));
    }
    if (first) fmt::print("{}\n", fmt::join(names, ","));
    fmt::print("{}\n", fmt::join(cells, ","));
    first = false;
  }
}

ExitCode run(const CompareArgs& args) {
  Limits limits = args.limits.limits();
  Comparison comparison = question_of(args, limits);
  RunStore store(args.output);
  {
    const Interrupt interrupt;
    limits.stop = interrupt.flag();
    comparison.runs = run_missing(comparison.tasks, limits, args.limits.threads, store, "compare");
  }
  if (args.json) {
    print_json(comparison);
  } else if (args.csv) {
    print_csv(comparison);
  } else if (args.markdown) {
    print_markdown(comparison);
  } else {
    print_table(comparison, Paint());
  }
  return ending("compare", comparison.runs, !args.output.empty());
}

}  // namespace

Action add_compare(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("compare", "Run solvers side by side, on graphs or folders");
  const auto args = std::make_shared<CompareArgs>();
  verb.add_option("GRAPHS", args->paths, "Graph files, folders of them, or - for standard input")
      ->required();
  args->read.add_to(verb);
  verb.add_option("--budgets", args->budgets, "Some, as 50%,6GiB,min (default 80%,60%,40%)")
      ->check(not_empty);
  verb.add_option("--solvers", args->solvers, "Some, as auto,ogc, or all (the default)")
      ->check(not_empty);
  args->limits.add_to(verb, ", of each run", "How many runs at a time");
  verb.add_option("-o,--output", args->output,
                  "Keep runs in this file as they are done, and repeat none of them")
      ->check(not_empty);
  CLI::Option* const markdown =
      verb.add_flag("--markdown", args->markdown, "Print Markdown tables of overheads");
  CLI::Option* const csv = verb.add_flag("--csv", args->csv, "Print comma-separated values");
  verb.add_flag("--json", args->json, "Print one JSON object")->excludes(markdown)->excludes(csv);
  csv->excludes(markdown);
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
