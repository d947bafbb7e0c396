// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cli/words.h"
#include "reprise/core/budget.h"
#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/core/simulator.h"

namespace reprise::cli {

using Json = nlohmann::ordered_json;

// A fraction of two costs, or nothing where the second is zero.
std::optional<double> over(Cost cost, Cost base);

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json or_null(std::optional<Bytes> bytes);
Json or_null(std::optional<Cost> cost);

void print(const Json& json);

// Throws InputError where both a JSON object and what goes to `output` would be standard output's.
void refuse_two_outputs(bool json, const std::string& output);

// "7 ops; plain: 70 B, 34": a graph's size, and what its plain run takes and costs.
std::string in_short(const Graph& graph, Bytes base_peak);
// The same on a line of its own, after the graph's name.
std::string heading(const Graph& graph, Bytes base_peak, const Paint& paint);

// A fact of a report: "peak           30 B   while f2 runs".
std::string line(std::string_view label, std::string_view amount, std::string_view remark);

// "33 %"; empty where the whole is 0.
std::string share(Bytes part, Bytes whole);

// What `plan` and `simulate` show of a plan: the facts in lines, the timeline, what is alive at the
// peak.
struct PlanReport {
  const Graph& graph;
  const Plan& plan;
  std::optional<Bytes> budget;
  Bytes resident_in_budget;              // counted in the budget beside the peak
  std::optional<Cost> lower_bound;       // on the cost …
  std::string_view bound_scope = "any";  // … of these plans
};
std::string to_words(const PlanReport& report, const Paint& paint);

}  // namespace reprise::cli
