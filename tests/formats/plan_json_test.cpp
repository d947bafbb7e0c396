// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/plan_json.h"

#include <gtest/gtest.h>

#include "reprise/core/lifetimes.h"
#include "tests/core/graphs.h"

namespace reprise {
namespace {

Text plan_text(const std::string& fields, const std::string& steps) {
  return {"plan.json",
          R"({"format": "reprise-plan", "version": 1)" + fields + R"(, "steps": [)" + steps + "]}"};
}

std::string message_of(const Text& text, const Graph& graph) {
  try {
    resolve(read_plan_json(text), graph, text.name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PlanJson, WhatIsWrittenReadsBackTheSame) {
  const Graph graph = unit_chain(3);
  const Plan plan = base_run(graph);
  const Text text{"plan.json", write_plan_json(graph, plan, "store-all", Bytes{5}, Cost{7})};
  const PlanFile file = read_plan_json(text);
  EXPECT_EQ(file.graph, "chain");
  EXPECT_EQ(file.solver, "store-all");
  EXPECT_EQ(file.peak, Bytes{5});
  EXPECT_EQ(file.cost, Cost{7});
  EXPECT_EQ(resolve(file, graph, text.name), plan);
}

TEST(PlanJson, NeedsNoMoreThanSteps) {
  const Graph graph = unit_chain(1);
  EXPECT_EQ(message_of(plan_text("", R"(["compute", "f0"], ["free", "f0"])"), graph), "accepted");
}

TEST(PlanJson, RefusesWithThePath) {
  const Graph graph = unit_chain(1);
  EXPECT_EQ(message_of(plan_text("", R"(["compute", "f9"])"), graph),
            "plan.json: steps[0]: unknown op 'f9' (did you mean 'f0'?)");
  EXPECT_EQ(message_of(plan_text("", R"(["free", "gradient"])"), graph),
            "plan.json: steps[0]: unknown value 'gradient'");
  EXPECT_EQ(message_of(plan_text("", R"(["drop", "f0"])"), graph),
            "plan.json: steps[0][0]: unknown step 'drop': want compute or free");
  EXPECT_EQ(message_of(plan_text("", R"(["compute"])"), graph),
            R"(plan.json: steps[0]: want ["compute", an op] or ["free", a value])");
  EXPECT_EQ(message_of(plan_text(R"(, "fingerprint": "0123")", ""), graph)
                .rfind("plan.json: the plan is for another graph", 0),
            0U);
  EXPECT_EQ(message_of(plan_text(R"(, "peak": 1)", ""), graph),
            "plan.json: peak: unknown field (did you mean 'peak_bytes'?)");
}

}  // namespace
}  // namespace reprise
