// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/formats/json.h"

namespace reprise {

// A plan as a file has it: by names, with what it claims of itself. A plan written by hand may
// leave everything but the steps out.
struct PlanFile {
  struct NamedStep {
    StepKind kind;
    std::string name;
    friend bool operator==(const NamedStep&, const NamedStep&) = default;
  };
  std::string graph;                       // its name, or empty
  std::optional<std::string> fingerprint;  // of the graph it is for
  std::string solver;                      // or empty
  std::optional<Bytes> peak;
  std::optional<Cost> cost;
  std::vector<NamedStep> steps;
};

// Format `reprise-plan`, version 1: docs/formats.md, docs/schemas/plan.schema.json.
// Throws InputError with the JSON path.
PlanFile read_plan_json(const Text& text);

// The plan in terms of `graph`. Throws InputError where the fingerprint says it is for another
// graph, or a name is not in it. `source` is what messages call the file.
Plan resolve(const PlanFile& file, const Graph& graph, const std::string& source);

// One step a line.
std::string write_plan_json(const Graph& graph, const Plan& plan, std::string_view solver,
                            Bytes peak, Cost cost);

std::string_view to_string(StepKind kind);

}  // namespace reprise
