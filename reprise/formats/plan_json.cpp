// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/plan_json.h"

#include <fmt/core.h>

#include <iterator>

#include "reprise/formats/version.h"

namespace reprise {
namespace {

// A string that can be shown on one line.
std::string line(JsonValue json) {
  if (has_control_character(json.string())) json.fail("has a control character");
  return std::string(json.string());
}

PlanFile::NamedStep read_step(JsonValue json) {
  std::vector<JsonValue> parts;
  for (const JsonValue part : json.elements()) parts.push_back(part);
  if (parts.size() != 2) json.fail("want [\"compute\", an op] or [\"free\", a value]");
  const std::string_view verb = parts[0].string();
  for (const StepKind kind : {StepKind::compute, StepKind::free}) {
    if (verb == to_string(kind)) return {kind, line(parts[1])};
  }
  parts[0].fail(fmt::format("unknown step {}: want compute or free", in_quotes(verb)));
}

template <class Ids>
std::string nearest(const Graph& graph, Ids ids, std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto id : ids) known.push_back(graph.name(id));
  return did_you_mean(name, known);
}

}  // namespace

PlanFile read_plan_json(const Text& text) {
  const JsonDocument document(text);
  const JsonValue root = document.root();
  check_version(root, "reprise-plan");
  PlanFile plan;
  for (const JsonValue field : root.members()) {
    const std::string_view key = field.key();
    if (key == "graph") {
      plan.graph = line(field);
    } else if (key == "fingerprint") {
      plan.fingerprint = line(field);
    } else if (key == "solver") {
      plan.solver = line(field);
    } else if (key == "peak_bytes") {
      plan.peak = field.bytes();
    } else if (key == "cost") {
      plan.cost = field.cost();
    } else if (key != "format" && key != "version" && key != "steps") {
      field.fail_unknown_field(
          {"format", "version", "graph", "fingerprint", "solver", "peak_bytes", "cost", "steps"});
    }
  }
  for (const JsonValue step : root.at("steps").elements()) plan.steps.push_back(read_step(step));
  return plan;
}

Plan resolve(const PlanFile& file, const Graph& graph, const std::string& source) {
  if (file.fingerprint && *file.fingerprint != graph.fingerprint()) {
    throw InputError(fmt::format(
        "{}: the plan is for another graph: its fingerprint is {}, that of graph {} is {}", source,
        in_quotes(*file.fingerprint), in_quotes(graph.name()), in_quotes(graph.fingerprint())));
  }
  const NameIndex names(graph);
  Plan plan;
  plan.steps.reserve(file.steps.size());
  for (const PlanFile::NamedStep& step : file.steps) {
    const std::string& name = step.name;
    const auto refuse = [&](std::string_view what, const std::string& guess) {
      throw InputError(fmt::format("{}: steps[{}]: unknown {} {}{}", source, plan.steps.size(),
                                   what, in_quotes(name), guess));
    };
    if (step.kind == StepKind::compute) {
      const auto op = names.op(name);
      if (!op) refuse("op", nearest(graph, graph.ops(), name));
      plan.steps.push_back(Step::compute(*op));
    } else {
      const auto value = names.value(name);
      if (!value) refuse("value", nearest(graph, graph.values(), name));
      plan.steps.push_back(Step::free(*value));
    }
  }
  return plan;
}

std::string write_plan_json(const Graph& graph, const Plan& plan, std::string_view solver,
                            Bytes peak, Cost cost) {
  std::string out = "{\"format\": \"reprise-plan\", \"version\": 1, \"graph\": ";
  append_json_string(out, graph.name());
  out += ", \"fingerprint\": ";
  append_json_string(out, graph.fingerprint());
  out += ", \"solver\": ";
  append_json_string(out, solver);
  fmt::format_to(std::back_inserter(out), ",\n\"peak_bytes\": {}, \"cost\": {},\n\"steps\": [",
                 peak.count(), cost.count());
  bool first = true;
  for (const Step step : plan.steps) {
    fmt::format_to(std::back_inserter(out), "{}[\"{}\", ", first ? "\n " : ",\n ",
                   to_string(step.kind()));
    first = false;
    append_json_string(
        out, step.kind() == StepKind::compute ? graph.name(step.op()) : graph.name(step.value()));
    out += ']';
  }
  out += "]}\n";
  return out;
}

std::string_view to_string(StepKind kind) { return kind == StepKind::compute ? "compute" : "free"; }

}  // namespace reprise
