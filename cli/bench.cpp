// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/bench_results.h"
#include "cli/graph_args.h"
#include "cli/interrupt.h"
#include "cli/limits.h"
#include "cli/made_graphs.h"
#include "cli/runs.h"
#include "cli/verbs.h"
#include "cli/words.h"

namespace reprise::cli {
namespace {

struct BenchArgs {
  std::vector<std::string> paths;
  ReadArgs read;
  std::string budgets = "90%,80%,70%,60%,50%,40%,30%";
  std::string seeds = "0,1,2";
  LimitArgs limits;
  bool ablation = false;
  std::string output;
  bool markdown = false;
  bool json = false;
};

std::vector<Subject> made_subjects() {
  std::vector<Subject> subjects;
  subjects.push_back(subject_of(residual_graph()));
  subjects.push_back(subject_of(layered_graph()));
  return subjects;
}

void add_tasks(Bench& bench, const Techniques& techniques) {
  for (const Subject& subject : bench.subjects) {
    for (const std::string& budget : bench.budgets) {
      for (const std::uint64_t seed : bench.seeds) {
        bench.tasks.push_back({&subject.graph, &find_solver("auto"),
                               parse_budget(budget, subject.base_peak), seed, techniques});
      }
    }
  }
}

Bench question_of(const BenchArgs& args, const Techniques& in_use) {
  Bench bench;
  bench.budgets = split_list(args.budgets, "budgets");
  for (const std::string& budget : bench.budgets) {
    if (!parse_budget(budget, Bytes{0}).bytes) {
      throw InputError(
          "budgets: want bytes or shares, not 'min': overheads at different peaks "
          "can't be compared");
    }
  }
  bench.seeds = parse_seeds(args.seeds);
  bench.subjects = args.paths.empty() ? made_subjects() : load_subjects(args.paths, args.read);
  add_tasks(bench, in_use);
  for (const TechniqueWords& known : kTechniques) {
    if (!args.ablation || !in_use.has(known.technique)) continue;
    bench.left_out.push_back(&known);
    Techniques fewer = in_use;
    fewer.leave_out(known.technique);
    add_tasks(bench, fewer);
  }
  return bench;
}

// Points of overhead between the best plan and what is proven.
std::optional<double> gap_points(const Case& all, const Graph& graph) {
  if (!all.best || !all.bound || graph.base_cost() == Cost{0}) return std::nullopt;
  return 100 * static_cast<double>((*all.best - *all.bound).count()) /
         static_cast<double>(graph.base_cost().count());
}

std::string gap_words(std::optional<double> points) {
  if (!points) return "–";
  if (*points == 0) return "0";
  return *points < 1e-4 ? "< 0.0001" : fmt::format("{:.4f}", *points);
}

std::string seconds_words(std::optional<double> seconds) {
  return seconds ? fmt::format("{:.3f}", *seconds) : "–";
}

std::string figure_words(const std::optional<PublishedFigure>& figure) {
  if (!figure) return "–";
  if (!figure->points) return "time out";
  return fmt::format("{:+g} % in {:g} s{}", *figure->points, figure->seconds,
                     figure->missed ? ", missed" : "");
}

using Cells = std::vector<std::string>;  // a row of a table; the first has the headings

// One graph, a row a budget.
std::vector<Cells> rows_of(const Bench& bench, std::size_t subject) {
  const Graph& graph = bench.subjects[subject].graph;
  const auto cost_words = [&](std::optional<Cost> cost) {
    return cost ? overhead_words(*cost, graph) : std::string("–");
  };
  std::vector<Cells> rows{
      {"budget", "overhead", "worst", "bound", "gap", "near (s)", "best (s)", "status"}};
  std::vector<PublishedFigures> figures;
  bool any_published = false;
  for (std::size_t b = 0; b < bench.budgets.size(); ++b) {
    const Case all = case_of(bench.at(subject, b), graph);
    rows.push_back({bench.budgets[b], cost_words(all.best), cost_words(all.worst),
                    cost_words(all.bound), gap_words(gap_points(all, graph)),
                    seconds_words(all.seconds_to_near), seconds_words(all.seconds_to_best),
                    std::string(all.status)});
    figures.push_back(
        published(graph, bench.subjects[subject].base_peak, bench.task(subject, b).budget));
    for (const auto& figure : figures.back()) any_published |= figure.has_value();
  }
  if (!any_published) return rows;
  rows[0].insert(rows[0].end(), kPublishedMethods.begin(), kPublishedMethods.end());
  for (std::size_t b = 0; b < bench.budgets.size(); ++b) {
    for (const auto& figure : figures[b]) rows[1 + b].push_back(figure_words(figure));
  }
  return rows;
}

// "+0.1234": how many points are lost or gained.
std::string change_words(std::optional<double> fraction, int sign) {
  if (!fraction) return "–";
  const double points = sign * 100 * *fraction;
  return std::fabs(points) < 5e-5 ? "0" : fmt::format("{:+.4f}", points);
}

std::vector<Cells> rows_of(const std::vector<Earned>& techniques) {
  std::vector<Cells> rows{{"without", "overhead", "bound", "time", "plans", "pairs"}};
  for (const Earned& row : techniques) {
    rows.push_back(
        {std::string(row.technique), change_words(row.overhead, 1), change_words(row.bound, -1),
         row.time ? fmt::format("× {:.2f}", *row.time) : "–",
         row.plans == 0 ? "0" : fmt::format("-{}", row.plans), std::to_string(row.pairs)});
  }
  return rows;
}

constexpr std::string_view kAblationWords =
    "by how many points overhead and bound change where one is left out (means)";

void print_rows(const std::vector<Cells>& rows, bool first_is_name) {
  std::vector<std::size_t> widths(rows[0].size(), 8);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool left = i == 0 && first_is_name;
      line += (i == 0 ? "" : "   ") +
              (left ? pad_right(row[i], widths[i]) : pad_left(row[i], widths[i]));
    }
    fmt::print("{}\n", line);
  }
}

void print_markdown_rows(const std::vector<Cells>& rows) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    fmt::print("| {} |\n", fmt::join(rows[r], " | "));
    if (r == 0) fmt::print("|---|{}\n", fmt::join(Cells(rows[0].size() - 1, "--:|"), ""));
  }
}

void print_words(const Bench& bench, bool ablation, const Paint& paint) {
  if (ablation) {
    fmt::print("{}: {}\n", paint.bold("techniques"), kAblationWords);
    print_rows(rows_of(earned(bench)), true);
    return;
  }
  for (std::size_t s = 0; s < bench.subjects.size(); ++s) {
    const Subject& subject = bench.subjects[s];
    fmt::print("{}{}   {}\n", s == 0 ? "" : "\n", paint.bold(subject.label),
               in_short(subject.graph, subject.base_peak));
    print_rows(rows_of(bench, s), false);
  }
}

void print_markdown(const Bench& bench, bool ablation) {
  if (ablation) {
    fmt::print("Techniques: {}.\n\n", kAblationWords);
    print_markdown_rows(rows_of(earned(bench)));
    return;
  }
  for (std::size_t s = 0; s < bench.subjects.size(); ++s) {
    const Subject& subject = bench.subjects[s];
    fmt::print("{}**{}**: {}\n\n", s == 0 ? "" : "\n", for_markdown(subject.label),
               in_short(subject.graph, subject.base_peak));
    print_markdown_rows(rows_of(bench, s));
  }
}

Json published_json(const PublishedFigures& figures) {
  Json list = Json::array();
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (!figures[i]) continue;
    const auto& points = figures[i]->points;
    Json entry;
    entry["method"] = kPublishedMethods[i];
    entry["overhead"] = or_null(points ? std::optional(*points / 100) : std::nullopt);
    entry["seconds"] = or_null(points ? std::optional(figures[i]->seconds) : std::nullopt);
    entry["met"] = points && !figures[i]->missed;
    list.push_back(std::move(entry));
  }
  return list;
}

Json case_json(const Bench& bench, std::size_t s, std::size_t b) {
  const Subject& subject = bench.subjects[s];
  const Graph& graph = subject.graph;
  const auto overhead = [&](std::optional<Cost> cost) {
    return or_null(cost ? over(*cost, graph.base_cost()) : std::nullopt);
  };
  const Budget budget = bench.task(s, b).budget;
  const Case all = case_of(bench.at(s, b), graph);
  Json json;
  json["file"] = subject.file.empty() ? Json(nullptr) : Json(subject.file);
  json["graph"] = graph.name();
  json["budget"] = bench.budgets[b];
  json["budget_bytes"] = or_null(budget.bytes);
  json["base_peak_bytes"] = subject.base_peak.count();
  json["base_cost"] = graph.base_cost().count();
  json["status"] = all.status;
  json["plans"] = all.plans;
  json["overhead"] = overhead(all.best);
  json["worst_overhead"] = overhead(all.worst);
  json["proven_overhead"] = overhead(all.bound);
  json["gap_points"] = or_null(gap_points(all, graph));
  json["seconds_to_near"] = or_null(all.seconds_to_near);
  json["seconds_to_best"] = or_null(all.seconds_to_best);
  json["published"] = published_json(published(graph, subject.base_peak, budget));
  json["runs"] = Json::array();
  for (std::size_t i = 0; i < bench.seeds.size(); ++i) {
    const std::optional<Run>& run = bench.at(s, b)[i];
    if (!run) continue;
    Json entry;
    entry["seed"] = bench.seeds[i];
    add_fields(entry, *run, graph);
    const bool found = run->cost.has_value();
    entry["seconds_to_near"] = found ? Json(seconds_to_near(*run, graph)) : Json(nullptr);
    entry["seconds_to_best"] = found ? Json(seconds_to_best(*run)) : Json(nullptr);
    json["runs"].push_back(std::move(entry));
  }
  return json;
}

void print_json(const Bench& bench, bool ablation) {
  Json json;
  json["cases"] = Json::array();
  for (std::size_t s = 0; s < bench.subjects.size(); ++s) {
    for (std::size_t b = 0; b < bench.budgets.size(); ++b) {
      json["cases"].push_back(case_json(bench, s, b));
    }
  }
  if (ablation) json["techniques"] = Json::array();
  for (const Earned& row : earned(bench)) {
    Json entry;
    entry["technique"] = row.technique;
    entry["what"] = row.what;
    entry["pairs"] = row.pairs;
    entry["plans_earned"] = row.plans;
    entry["overhead_earned"] = or_null(row.overhead);
    entry["bound_earned"] = or_null(row.bound);
    entry["time_without"] = or_null(row.time);
    json["techniques"].push_back(std::move(entry));
  }
  json["not_run"] = std::count(bench.runs.begin(), bench.runs.end(), std::nullopt);
  print(json);
}

ExitCode run(const BenchArgs& args) {
  Limits limits = args.limits.limits();
  Bench bench = question_of(args, limits.techniques);
  RunStore store(args.output);
  {
    const Interrupt interrupt;
    limits.stop = interrupt.flag();
    bench.runs = run_missing(bench.tasks, limits, args.limits.threads, store, "bench");
  }
  if (args.json) {
    print_json(bench, args.ablation);
  } else if (args.markdown) {
    print_markdown(bench, args.ablation);
  } else {
    print_words(bench, args.ablation, Paint());
  }
  return ending("bench", bench.runs, !args.output.empty());
}

}  // namespace

Action add_bench(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("bench", "Measure auto: overhead, bound and time to reach");
  const auto args = std::make_shared<BenchArgs>();
  verb.add_option("GRAPHS", args->paths,
                  "Graph files, folders, or - for standard input; none: two that it makes");
  args->read.add_to(verb);
  verb.add_option("--budgets", args->budgets, "Some, as 50%,6GiB (default 90% to 30% by tens)")
      ->check(not_empty);
  verb.add_option("--seeds", args->seeds, "Some, a run each (default 0,1,2)")->check(not_empty);
  args->limits.add_seedless_to(verb, ", of each run", "How many runs at a time");
  verb.add_flag("--ablation", args->ablation, "Say what each technique of auto's earns");
  verb.add_option("-o,--output", args->output,
                  "Keep runs in this file as they are done, and repeat none of them")
      ->check(not_empty);
  CLI::Option* const markdown =
      verb.add_flag("--markdown", args->markdown, "Print Markdown tables");
  verb.add_flag("--json", args->json, "Print one JSON object")->excludes(markdown);
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
