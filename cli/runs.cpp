// SPDX-License-Identifier: Apache-2.0
#include "cli/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/interrupt.h"
#include "cli/limits.h"
#include "cli/words.h"
#include "reprise/formats/graph_formats.h"
#include "reprise/formats/json.h"

namespace reprise::cli {
namespace {

constexpr std::string_view kHeader = "{\"format\":\"reprise-runs\",\"version\":1}\n";

std::int64_t microseconds(double seconds) { return std::llround(seconds * 1e6); }

double seconds_of(JsonValue microseconds) {
  return static_cast<double>(microseconds.amount()) / 1e6;
}

// A hash of all that solvers can read in a graph: FNV-1a of its text.
std::string problem_hash(const Graph& graph) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : write_graph(graph, GraphFormat::reprise_graph)) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", hash);
}

template <class T>
std::optional<T> optional_amount(JsonValue json, std::string_view key) {
  const JsonValue field = json.at(key);
  return field.is_null() ? std::nullopt : std::optional(T{field.amount()});
}

Status status_of(JsonValue name) {
  for (const Status status :
       {Status::optimal, Status::feasible, Status::infeasible, Status::limit}) {
    if (name.string() == to_string(status)) return status;
  }
  name.fail(fmt::format("unknown status {}", in_quotes(name.string())));
}

// The task of a line, as RunStore::key has it.
std::string key_text(JsonValue line) {
  Json key;
  for (const JsonValue field : line.at("task").members()) {
    Json& copy = key[std::string(field.key())];
    if (field.is_string()) copy = field.string();
    if (field.is_whole()) copy = field.whole();
  }
  return key.dump();
}

std::string line_text(const Json& key, const Run& run) {
  Json line;
  line["task"] = key;
  line["status"] = to_string(run.status);
  line["peak_bytes"] = or_null(run.peak);
  line["cost"] = or_null(run.cost);
  line["lower_bound"] = or_null(run.lower_bound);
  line["bound_scope"] = run.bound_scope;
  line["smallest_peak_bytes"] = or_null(run.smallest_peak);
  line["solve_microseconds"] = microseconds(run.seconds);
  line["milestones"] = Json::array();
  for (const Milestone& reached : run.milestones) {
    line["milestones"].push_back(
        {{"microseconds", microseconds(reached.seconds)}, {"cost", reached.cost.count()}});
  }
  return line.dump() + '\n';
}

Run run_of(JsonValue line) {
  Run run;
  run.status = status_of(line.at("status"));
  run.peak = optional_amount<Bytes>(line, "peak_bytes");
  run.cost = optional_amount<Cost>(line, "cost");
  run.lower_bound = optional_amount<Cost>(line, "lower_bound");
  run.bound_scope = line.at("bound_scope").string();
  run.smallest_peak = optional_amount<Bytes>(line, "smallest_peak_bytes");
  run.seconds = seconds_of(line.at("solve_microseconds"));
  for (const JsonValue reached : line.at("milestones").elements()) {
    run.milestones.push_back({seconds_of(reached.at("microseconds")), reached.at("cost").cost()});
  }
  if (run.peak.has_value() != run.cost.has_value()) line.fail("has a peak or a cost, not both");
  return run;
}

// The whole lines of a store, header first; none where the file is new or was cut off in its
// header.
std::string read_lines(const std::string& path) {
  if (!std::filesystem::exists(path)) return "";
  if (std::filesystem::is_directory(path)) throw InputError(path + ": is a directory");
  if (!std::filesystem::is_regular_file(path)) {
    throw InputError(path + ": is no regular file, so runs can't be kept in it");
  }
  if (std::filesystem::file_size(path) == 0) return "";
  std::string lines = read_text(path).content;
  if (lines.size() < kHeader.size() && kHeader.starts_with(lines)) return "";
  if (!lines.starts_with(kHeader)) {
    throw InputError(fmt::format("{}: is no file of runs: its first line is not {}", path,
                                 kHeader.substr(0, kHeader.size() - 1)));
  }
  lines.resize(lines.rfind('\n') + 1);
  return lines;
}

}  // namespace

std::vector<std::string> split_list(const std::string& text, std::string_view what) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    if (part.empty()) {
      throw InputError(fmt::format("{} {}: want some, parted by commas", what, in_quotes(text)));
    }
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) {
      parts.push_back(std::move(part));
    }
    begin = end + 1;
  }
  return parts;
}

std::vector<const Solver*> parse_solvers(const std::string& names) {
  std::vector<const Solver*> chosen;
  if (names == "all") {
    for (const Solver& solver : solvers()) chosen.push_back(&solver);
    return chosen;
  }
  for (const std::string& name : split_list(names, "solvers")) {
    chosen.push_back(&find_solver(name));
  }
  return chosen;
}

std::string_view status_word(const Run& run) {
  return run.refusal.empty() ? to_string(run.status) : "unsupported";
}

void add_fields(Json& json, const Run& run, const Graph& graph) {
  const bool bounded = run.lower_bound.has_value();
  json["status"] = status_word(run);
  json["peak_bytes"] = or_null(run.peak);
  json["cost"] = or_null(run.cost);
  json["overhead"] = or_null(run.cost ? over(*run.cost, graph.base_cost()) : std::nullopt);
  json["lower_bound"] = or_null(run.lower_bound);
  json["bound_scope"] = bounded ? Json(run.bound_scope) : Json(nullptr);
  json["smallest_peak_bytes"] = or_null(run.smallest_peak);
  json["solve_seconds"] = run.seconds;
}

std::string overhead_words(Cost cost, const Graph& graph) {
  const auto overhead = over(cost, graph.base_cost());
  return overhead ? percent(*overhead) : to_words(cost, graph.cost_unit());
}

std::string overhead_words(const Run& run, const Graph& graph) {
  if (!run.refusal.empty()) return "–";
  if (!run.cost) return run.status == Status::infeasible ? "infeasible" : "none";
  return overhead_words(*run.cost, graph);
}

RunStore::RunStore(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  if (is_standard_output(path_)) {
    throw InputError("--output needs a file: runs that are done are read back from it");
  }
  const std::string lines = read_lines(path_);
  std::size_t number = 1;
  for (std::size_t begin = kHeader.size(); begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    const Text line{path_, lines.substr(begin, end - begin), ++number};
    const JsonDocument document(line, fmt::format("{}:{}", path_, number));
    Run run = run_of(document.root());
    runs_.insert_or_assign(key_text(document.root()), std::move(run));
    begin = end + 1;
  }
  write_text(path_, lines.empty() ? kHeader : lines);
}

Json RunStore::key(const Task& task, const Limits& limits) {
  const auto [problem, fresh] = problems_.try_emplace(task.graph);
  if (fresh) problem->second = problem_hash(*task.graph);
  Json key;
  key["program"] = REPRISE_VERSION;
  key["problem"] = problem->second;
  key["graph"] = task.graph->name();
  key["solver"] = task.solver->name;
  key["budget_bytes"] = or_null(task.budget.bytes);
  key["time_limit_microseconds"] =
      limits.time ? Json(microseconds(limits.time->count())) : Json(nullptr);
  key["iterations"] = or_null(limits.iterations);
  key["gap"] = fmt::format("{}", limits.gap);
  key["seed"] = task.seed;
  key["without"] = left_out(task.techniques);
  key["start"] = task.start ? "a plan" : "none";
  return key;
}

const Run* RunStore::find(const Task& task, const Limits& limits) {
  if (path_.empty()) return nullptr;
  const auto found = runs_.find(key(task, limits).dump());
  return found == runs_.end() ? nullptr : &found->second;
}

void RunStore::add(const Task& task, const Limits& limits, const Run& run) {
  if (path_.empty() || !run.refusal.empty()) return;
  const Json name = key(task, limits);
  runs_.insert_or_assign(name.dump(), run);
  append_text(path_, line_text(name, run));
}

std::vector<std::optional<Run>> run_missing(std::span<const Task> tasks, Limits limits, int threads,
                                            RunStore& store, std::string_view verb) {
  std::vector<std::optional<Run>> runs(tasks.size());
  std::vector<Task> missing;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (const Run* const kept = store.find(tasks[i], limits)) {
      runs[i] = *kept;
      continue;
    }
    missing.push_back(tasks[i]);
    positions.push_back(i);
  }
  ProgressLine line(verb);
  std::size_t finished = tasks.size() - missing.size();
  limits.threads =
      std::max(1, threads / static_cast<int>(std::max<std::size_t>(missing.size(), 1)));
  limits.progress = [&](std::string_view doing) {
    line.show(fmt::format("{} of {} runs done, {}", finished, tasks.size(), doing));
  };
  run_all(missing, limits, threads, [&](std::size_t task, Run run) {
    ++finished;
    limits.progress(missing[task].solver->name);
    store.add(missing[task], limits, run);
    runs[positions[task]] = std::move(run);
  });
  return runs;
}

ExitCode ending(std::string_view verb, std::span<const std::optional<Run>> runs, bool kept) {
  const auto finished =
      std::count_if(runs.begin(), runs.end(), [](const auto& run) { return !!run; });
  if (static_cast<std::size_t>(finished) == runs.size()) return done;
  fmt::print(stderr, "reprise: {} was stopped with {} of {} runs done{}\n", verb, finished,
             runs.size(), kept ? ": the same command goes on from there" : "");
  return none_found;
}

}  // namespace reprise::cli
