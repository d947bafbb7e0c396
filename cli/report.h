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
