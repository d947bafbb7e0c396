// SPDX-License-Identifier: Apache-2.0
// What holds for every solver, whatever the graph and the budget. The suites that begin with Long
// are for `make test-all`.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reprise/core/checker.h"
#include "reprise/core/simulator.h"
#include "reprise/formats/files.h"
#include "reprise/formats/graph_formats.h"
#include "reprise/solvers/solver.h"
#include "tests/core/graphs.h"
#include "tests/oracle/exhaustive.h"
#include "tests/oracle/random_graph.h"
#include "tests/shared_data.h"
#include "tests/solvers/needs_highs.h"

namespace reprise {
namespace {

// The integer and linear programs: too slow to be asked as often as the rest, and given a time
// limit where a graph is large.
bool is_slow(const Solver& solver) { return !solver.in_auto && solver.name != "auto"; }

// A search ends after so many moves, here few; the others end by themselves.
Limits limits_of(const Solver& solver) {
  Limits limits;
  if (solver.name == "auto") limits.iterations = 2000;
  return limits;
}

// Asks for a plan and holds the answer against the checker.
Outcome expect_honest(const Solver& solver, const Problem& problem, const Limits& limits) {
  const Graph& graph = problem.graph;
  const Budget& budget = problem.budget;
  Outcome outcome = solve(solver, problem, limits);
  EXPECT_EQ(outcome.plan.has_value(),
            outcome.status == Status::optimal || outcome.status == Status::feasible);
  if (!outcome.plan) {
    EXPECT_LT(*budget.bytes, base_peak(graph));
    EXPECT_GT(*outcome.smallest_peak, *budget.bytes);
    return outcome;
  }
  const Verdict verdict = check(graph, *outcome.plan);
  EXPECT_FALSE(verdict.broken) << describe(graph, *verdict.broken);
  EXPECT_EQ(verdict.peak, outcome.peak);
  EXPECT_EQ(verdict.cost, outcome.cost);
  EXPECT_TRUE(budget.allows(outcome.peak));
  EXPECT_GE(outcome.cost, *outcome.lower_bound);
  EXPECT_GE(outcome.peak, outcome.smallest_peak_bound.bytes);
  if (outcome.stopped) return outcome;  // by the clock, so another time it may be another plan
  EXPECT_EQ(solve(solver, problem, limits).plan, outcome.plan) << "not deterministic";
  return outcome;
}

void expect_honest_and_never_below_the_optimum(int graphs) {
  oracle::Random random(10);
  for (int i = 0; i < graphs; ++i) {
    const Graph graph = oracle::random_graph(random, {2, 6, 7});
    const Bytes least = oracle::smallest_peak(graph);
    for (const Bytes budget : {least - Bytes{1}, least, least + Bytes{2}, least + Bytes{6}}) {
      const auto best = oracle::cheapest_plan(graph, budget);
      for (const Solver& solver : solvers()) {
        SCOPED_TRACE(testing::Message()
                     << solver.name << ", graph " << i << ", " << budget.count());
        const Problem problem{graph, Budget{budget}};
        if (!solver.supports(problem).empty()) continue;
        if (is_slow(solver) && i % 30 != 0) continue;
        const Outcome outcome = expect_honest(solver, problem, limits_of(solver));
        if (outcome.plan) {
          ASSERT_TRUE(best);
          EXPECT_GE(outcome.cost, best->cost);
        }
        const bool of_any_plan = outcome.bound_scope == "any";
        if (outcome.status == Status::optimal && of_any_plan) {
          EXPECT_EQ(outcome.cost, best->cost);
        }
        if (outcome.status == Status::infeasible) {
          EXPECT_FALSE(best);
        }
        if (best && outcome.lower_bound && of_any_plan) {
          EXPECT_LE(*outcome.lower_bound, best->cost);
        }
      }
    }
    if (testing::Test::HasFailure()) FAIL();
  }
}

TEST(EverySolver, IsHonestAndNeverBeatsTheExhaustiveOptimum) {
  expect_honest_and_never_below_the_optimum(150);
}

TEST(LongEverySolverOnTinyGraphs, IsHonestAndNeverBeatsTheExhaustiveOptimum) {
  expect_honest_and_never_below_the_optimum(300);
}

// At six budgets, the smallest and shares of the plain peak, with limits for each solver (none:
// it is not asked). No published planner has a cheaper plan than `auto`.
void expect_honest_at_six_budgets(
    const Graph& graph, const std::function<std::optional<Limits>(const Solver&)>& limits) {
  const Bytes plain = base_peak(graph);
  std::vector<Budget> budgets{Budget{}};
  for (const std::int64_t share : {100, 80, 60, 40, 20}) {
    budgets.push_back(Budget{Bytes{plain.count() / 100 * share}});
  }
  for (const Budget& budget : budgets) {
    const std::string bytes = budget.bytes ? std::to_string(budget.bytes->count()) : "min";
    SCOPED_TRACE(testing::Message() << graph.name() << ", " << bytes);
    const Problem problem{graph, budget};
    const Outcome best = expect_honest(find_solver("auto"), problem, *limits(find_solver("auto")));
    for (const Solver& solver : solvers()) {
      SCOPED_TRACE(solver.name);
      const auto some = limits(solver);
      if (solver.name == "auto" || !some) continue;
      const std::string reason = solver.supports(problem);
      if (!reason.empty()) {
        if (graph.has_phases()) {
          EXPECT_EQ(solver.name, "revolve") << reason;
        }
        continue;
      }
      const Outcome other = expect_honest(solver, problem, *some);
      if (!other.plan || !solver.in_auto) continue;
      EXPECT_TRUE(best.plan);
      EXPECT_LE(budget.bytes ? best.cost.count() : best.peak.count(),
                budget.bytes ? other.cost.count() : other.peak.count());
    }
  }
}

TEST(EverySolver, IsHonestOnAPublishedGraph) {
  SKIP_WITHOUT_SHARED_DATA();
  const Graph graph = read_graph(read_text(shared_data("pfnet/cg_vgg19.txt")));
  expect_honest_at_six_budgets(graph, [](const Solver& solver) {
    return is_slow(solver) ? std::nullopt : std::optional(limits_of(solver));
  });
}

// A relaxation, the optimum and what rounding makes of the relaxation, in this order.
TEST(LongCheckmate, RelaxesBelowAndRoundsAboveTheOptimum) {
  SKIP_WITHOUT_HIGHS();
  SKIP_WITHOUT_SHARED_DATA();
  for (const char* file : {"nodelink/vgg16_b256_v100.json", "h200/vgg16.json"}) {
    const Graph graph = read_graph(read_text(shared_data(file)));
    for (const std::int64_t share : {95, 90, 85, 80}) {
      SCOPED_TRACE(testing::Message() << file << ", " << share << " %");
      const Problem problem{graph, Budget{Bytes{base_peak(graph).count() / 100 * share}}};
      const auto run = [&](std::string_view name) {
        return solve(find_solver(name), problem, Limits{});
      };
      const Outcome best = run("checkmate-ilp");
      if (!best.plan) continue;
      for (const char* rounding : {"checkmate-lp", "checkmate-lp-random"}) {
        const Outcome rounded = run(rounding);
        EXPECT_LE(*rounded.lower_bound, best.cost) << rounding;
        if (rounded.plan) {
          EXPECT_GE(rounded.cost, best.cost) << rounding;
        }
      }
    }
  }
}

// Every file of ../shared/data that is a graph; none where there is no such folder.
std::vector<std::string> published_graphs() {
  std::vector<std::string> files;
  if (!std::filesystem::exists(shared_data(""))) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(shared_data(""))) {
    const bool is_graph = entry.path().parent_path().filename() != "golden";
    if (entry.is_regular_file() && is_graph) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

using LongEverySolver = testing::TestWithParam<std::string>;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongEverySolver);

TEST_P(LongEverySolver, IsHonestOnThePublishedGraphs) {
  const Graph graph = read_graph(read_text(GetParam()));
  expect_honest_at_six_budgets(graph, [](const Solver& solver) {
    std::optional<Limits> limits = limits_of(solver);
    if (is_slow(solver)) limits->time = std::chrono::seconds(5);
    if (is_slow(solver) && !milp_unavailable().empty()) limits.reset();
    return limits;
  });
}

INSTANTIATE_TEST_SUITE_P(Graphs, LongEverySolver, testing::ValuesIn(published_graphs()),
                         [](const auto& graph) {
                           std::string name = std::filesystem::path(graph.param).stem().string();
                           std::replace(name.begin(), name.end(), '.', '_');
                           return std::to_string(graph.index) + "_" + name;
                         });

}  // namespace
}  // namespace reprise
