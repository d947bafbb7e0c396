// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "cli/graph_args.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "cli/words.h"
#include "reprise/formats/plan_json.h"

namespace reprise::cli {
namespace {

struct DiffArgs {
  std::string a;
  std::string b;
  bool json = false;
};

using Counts = std::map<std::string, std::pair<std::size_t, std::size_t>>;  // in a, in b

struct Difference {
  std::optional<std::size_t> first;  // step at which they part
  Counts computes;                   // ops that run a different number of times
  Counts frees;                      // values that are freed so
};

Difference compare(const PlanFile& a, const PlanFile& b) {
  Difference difference;
  const auto [at_a, at_b] =
      std::mismatch(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end());
  if (at_a != a.steps.end() || at_b != b.steps.end()) {
    difference.first = static_cast<std::size_t>(at_a - a.steps.begin());
  }
  const auto counts = [&](StepKind kind) -> Counts& {
    return kind == StepKind::compute ? difference.computes : difference.frees;
  };
  for (const auto& step : a.steps) ++counts(step.kind)[step.name].first;
  for (const auto& step : b.steps) ++counts(step.kind)[step.name].second;
  for (Counts* list : {&difference.computes, &difference.frees}) {
    std::erase_if(*list,
                  [](const auto& entry) { return entry.second.first == entry.second.second; });
  }
  return difference;
}

void refuse_other_graph(const DiffArgs& args, const PlanFile& a, const PlanFile& b) {
  if (!a.fingerprint || !b.fingerprint || *a.fingerprint == *b.fingerprint) return;
  throw InputError(fmt::format("{} and {} are plans of different graphs: fingerprints {} and {}",
                               args.a, args.b, *a.fingerprint, *b.fingerprint));
}

std::size_t computes(const PlanFile& plan) {
  return static_cast<std::size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [](const auto& step) { return step.kind == StepKind::compute; }));
}

std::string step_words(const PlanFile& plan, std::size_t step) {
  if (step >= plan.steps.size()) return "the end";
  return fmt::format("{} {}", to_string(plan.steps[step].kind), plan.steps[step].name);
}

std::string counts_words(const Counts& counts, std::string_view what) {
  constexpr std::size_t kShown = 10;
  if (counts.empty()) return "";
  std::string out = fmt::format("{}:\n", what);
  std::size_t shown = 0;
  for (const auto& [name, times] : counts) {
    if (shown++ == kShown) break;
    out += fmt::format("  {} → {}   {}\n", times.first, times.second, name);
  }
  if (counts.size() > kShown) out += fmt::format("  {} more\n", counts.size() - kShown);
  return out;
}

Json counts_json(const Counts& counts) {
  Json json = Json::object();
  for (const auto& [name, times] : counts) json[name] = {times.first, times.second};
  return json;
}

Json claims_json(const std::string& path, const PlanFile& plan) {
  Json json;
  json["file"] = path;
  json["solver"] = plan.solver.empty() ? Json(nullptr) : Json(plan.solver);
  json["steps"] = plan.steps.size();
  json["computes"] = computes(plan);
  json["peak_bytes"] = or_null(plan.peak);
  json["cost"] = or_null(plan.cost);
  return json;
}

std::string words(const DiffArgs& args, const PlanFile& a, const PlanFile& b,
                  const Difference& difference) {
  constexpr std::array<std::string_view, 6> kLabels{"",         "solver", "steps",
                                                    "computes", "peak",   "cost"};
  constexpr std::size_t kRows = kLabels.size();
  const auto or_unknown = [](const auto& amount, auto to_text) {
    return amount ? to_text(*amount) : std::string("not said");
  };
  const auto peak = [](Bytes bytes) { return reprise::to_words(bytes); };
  const auto cost = [](Cost amount) { return to_words(amount, CostUnit::units); };
  const auto column = [&](const std::string& file, const PlanFile& plan) {
    return std::array<std::string, kRows>{file,
                                          plan.solver.empty() ? "not said" : plan.solver,
                                          std::to_string(plan.steps.size()),
                                          std::to_string(computes(plan)),
                                          or_unknown(plan.peak, peak),
                                          or_unknown(plan.cost, cost)};
  };
  const auto left = column(args.a, a);
  const auto right = column(args.b, b);
  std::size_t cells = 12;
  for (const auto* texts : {&left, &right}) {
    for (const std::string& text : *texts) cells = std::max(cells, width(text));
  }
  std::string out;
  for (std::size_t row = 0; row < kRows; ++row) {
    out += pad_right(kLabels[row], 10) + pad_left(left[row], cells) + "   " +
           pad_left(right[row], cells) + '\n';
  }
  if (!difference.first) return out + "the same steps\n";
  out += fmt::format("they part at steps[{}]: {} | {}\n", *difference.first,
                     step_words(a, *difference.first), step_words(b, *difference.first));
  out += counts_words(difference.computes, "runs, where they differ");
  out += counts_words(difference.frees, "frees, where they differ");
  if (difference.computes.empty() && difference.frees.empty()) {
    out += "the same computes and frees, in another order\n";
  }
  return out;
}

ExitCode run(const DiffArgs& args) {
  const PlanFile a = read_plan_json(read_text(args.a));
  const PlanFile b = read_plan_json(read_text(args.b));
  refuse_other_graph(args, a, b);
  const Difference difference = compare(a, b);
  if (args.json) {
    Json json;
    json["same"] = !difference.first;
    json["a"] = claims_json(args.a, a);
    json["b"] = claims_json(args.b, b);
    json["first_difference"] = or_null(difference.first);
    json["runs"] = counts_json(difference.computes);
    json["frees"] = counts_json(difference.frees);
    print(json);
  } else {
    fmt::print("{}", words(args, a, b, difference));
  }
  return done;
}

}  // namespace

Action add_diff(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("diff", "Say how two plans of one graph differ");
  const auto args = std::make_shared<DiffArgs>();
  verb.add_option("A", args->a, "A plan file, or - for standard input")->required();
  verb.add_option("B", args->b, "Another")->required();
  verb.add_flag("--json", args->json, "Print one JSON object");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
