// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "cli/graph_args.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "reprise/formats/lower_set_schedule.h"
#include "reprise/solvers/lower_sets/program.h"
#include "reprise/solvers/lower_sets/square_root.h"

namespace reprise::cli {
namespace {

struct ScheduleArgs {
  std::string path = "-";
  std::string budget;
  std::string mode = "T";
  std::vector<std::string> liveness;  // "-opt off" comes as "-o" with "pt", "off"
  std::string method = "exact";
  bool json = false;
};

// A node is a forward function, in the order of its first variable.
struct Nodes {
  LowerSetGraph graph;
  std::vector<std::uint32_t> of_function;
};

Nodes nodes_of(const LowerSetFile& file) {
  Nodes nodes;
  constexpr std::uint32_t kNone = UINT32_MAX;
  nodes.of_function.assign(file.functions.size(), kNone);
  for (LowerSetFile::Variable variable = 0; variable < file.bytes.size(); ++variable) {
    const auto producer = file.producers[variable];
    if (!producer) continue;
    std::uint32_t& node = nodes.of_function[*producer];
    if (node == kNone) {
      node = static_cast<std::uint32_t>(nodes.graph.nodes.size());
      nodes.graph.nodes.push_back({file.functions[*producer].cost(), Bytes{0}, {}});
    }
    nodes.graph.nodes[node].bytes += file.bytes[variable];
  }
  for (std::size_t f = 0; f < file.functions.size(); ++f) {
    auto& reads = nodes.graph.nodes[nodes.of_function[f]].reads;
    for (const LowerSetFile::Variable input : file.functions[f].inputs) {
      if (file.is_source(input)) continue;
      const std::uint32_t read = nodes.of_function[*file.producers[input]];
      if (std::find(reads.begin(), reads.end(), read) == reads.end()) reads.push_back(read);
    }
  }
  return nodes;
}

std::optional<Bytes> parse_bytes(const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc{} || end != text.data() + text.size() || bytes < 0) {
    throw InputError(fmt::format("-b {}: want a whole number of bytes", in_quotes(text)));
  }
  return Bytes{bytes};
}

struct Answer {
  std::optional<LowerSetSequence> sequence;  // none: impossible, …
  Bytes smallest_budget;                     // … and this would do
};

bool forgets_early(const std::vector<std::string>& words) {
  if (words.empty() || words == std::vector<std::string>{"pt", "on"}) return true;
  if (words == std::vector<std::string>{"pt", "off"}) return false;
  throw InputError("want -opt off or -opt on");
}

// The sequence of most kept cost within the budget, or with `-t M` of least kept bytes. Where
// `family` has all lower sets, an answer with few of them, `hint`, saves work.
Answer solve(const LowerSetGraph& graph, const LowerSets& family, std::optional<Bytes> budget,
             bool memory_mode, const Answer* hint) {
  const LowerSetProgram program(graph, family);
  LowerSetProgram::Options options;
  if (memory_mode) options.states_per_set = 1;
  if (!memory_mode && hint != nullptr && hint->sequence) {
    options.at_least = hint->sequence->kept_cost.count();
  }
  const auto front = program.run(budget.value_or(program.largest_budget()), options);
  if (!front) throw InputError("the graph is too large for this method");
  if (front->size() > 0) return {front->sequence(front->size() - 1), Bytes{0}};
  const Bytes possible = hint != nullptr ? hint->smallest_budget : program.largest_budget();
  return {std::nullopt, *program.smallest_budget(possible, options.room)};
}

Json to_json(const LowerSetFile& file, const LowerSets& family, const LowerSetSequence& sequence,
             std::span<const LowerSetCommand> schedule) {
  const LowerSetReplay taken = replay(file, schedule);
  Cost forward;
  for (const auto& function : file.functions) forward += function.cost();
  Json json;
  json["lower_sets"] = family.size();
  json["segments"] = sequence.count;
  json["kept_cost"] = sequence.kept_cost.count();
  json["kept_bytes"] = sequence.kept_bytes.count();
  json["formula_bytes"] = sequence.peak.count();
  json["peak_bytes"] = taken.peak.count();
  json["peak_bytes_with_source_gradients"] = taken.peak_with_source_gradients.count();
  json["cost"] = taken.cost.count();
  json["base_cost"] = forward.count();
  json["forward_calls"] = taken.forward_calls;
  json["backward_calls"] = taken.backward_calls;
  json["schedule"] = to_text(file, schedule);
  return json;
}

ExitCode run(const ScheduleArgs& args) {
  const auto budget = parse_bytes(args.budget);
  const bool memory_mode = args.mode.rfind('M', 0) == 0;
  const bool early = forgets_early(args.liveness);
  const LowerSetFile file = parse_lower_set_file(read_text(args.path));
  const Nodes nodes = nodes_of(file);
  const auto ancestors = LowerSets::of_ancestors(nodes.graph, {});
  if (!ancestors) throw InputError("the graph is too large for this method");
  std::optional<LowerSets> all;
  if (args.method != "approx") {
    all = LowerSets::all(nodes.graph, {});
    if (!all) {
      fmt::print(stderr, "reprise: there are too many lower sets: taking those of ancestors\n");
    }
  }
  const LowerSets& family = all ? *all : *ancestors;
  const bool fell_back = args.method != "approx" && !all;

  Answer answer;
  if (args.method == "chen") {
    SquareRootSequence chosen = square_root_sequence(nodes.graph, family);
    fmt::print(stderr, "reprise: {} candidates, square root {}, {} sets taken\n", chosen.candidates,
               chosen.root, chosen.sequence.count + 1);
    answer.sequence = std::move(chosen.sequence);
  } else {
    if (!budget) fmt::print(stderr, "reprise: no -b: the schedule is under no bound\n");
    const Answer hint = solve(nodes.graph, *ancestors, budget, memory_mode, nullptr);
    answer = all ? solve(nodes.graph, *all, budget, memory_mode, &hint) : hint;
  }
  if (!answer.sequence) {
    if (args.json) {
      print(Json{{"lower_sets", family.size()},
                 {"smallest_budget_bytes", answer.smallest_budget.count()},
                 {"schedule", nullptr}});
    } else if (!fell_back) {
      fmt::print("IMPOSSIBLE\n");
    }
    fmt::print(stderr, "reprise: -b {} is {}; the smallest that works{} is {}\n", args.budget,
               fell_back ? "not met" : "impossible", fell_back ? " with these" : "",
               answer.smallest_budget.count());
    return fell_back ? none_found : infeasible;
  }
  std::vector<std::uint32_t> segments;
  for (const std::uint32_t node : nodes.of_function) {
    segments.push_back(answer.sequence->segments[node]);
  }
  std::vector<LowerSetCommand> schedule = lower_set_schedule(file, segments);
  if (early) schedule = with_early_forgets(file, schedule);
  if (args.json) {
    print(to_json(file, family, *answer.sequence, schedule));
  } else {
    fmt::print("{}", to_text(file, schedule));
  }
  return done;
}

}  // namespace

Action add_schedule(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("schedule", "Plan lower-set text as the original does");
  const auto args = std::make_shared<ScheduleArgs>();
  verb.add_option("GRAPH", args->path, "A lower-set text; - or left out: standard input");
  verb.add_option("-b", args->budget, "Bytes that no segment may pass, by the paper's formula");
  verb.add_option("-t", args->mode, "M: keep the fewest bytes; else the most cost");
  verb.add_option("-o", args->liveness, "Off: forget at the end of each segment, not early")
      ->option_text("-opt {on,off}")
      ->expected(2);
  verb.add_option("--method", args->method, "exact (the default), approx or chen")
      ->check(one_of({"exact", "approx", "chen"}));
  verb.add_flag("--json", args->json, "Print one JSON object");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
