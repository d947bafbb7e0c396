// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/solvers/checkmate/model.h"
#include "reprise/solvers/checkmate/published.h"
#include "reprise/solvers/checkmate/stages.h"
#include "reprise/solvers/checkmate_ilp.h"
#include "reprise/solvers/checkmate_lp.h"
#include "reprise/solvers/solver.h"
#include "tests/core/graphs.h"
#include "tests/oracle/exhaustive.h"
#include "tests/oracle/random_graph.h"
#include "tests/oracle/random_plan.h"
#include "tests/solvers/checkmate_golden.h"
#include "tests/solvers/needs_highs.h"

namespace reprise {
namespace {

Outcome run(std::string_view solver, const Graph& graph, std::optional<std::int64_t> budget,
            const Limits& limits = {}) {
  Budget bytes;
  if (budget) bytes.bytes = Bytes{*budget};
  return solve(find_solver(solver), {graph, bytes}, limits);
}

// With op i in stage i the runs of any kept values are a right plan, and never more than once a
// stage; what a plan keeps gives its own runs back, or fewer.
TEST(CheckmateStages, TurnAnythingKeptIntoARightPlan) {
  oracle::Random random(21);
  for (int i = 0; i < 500; ++i) {
    const Graph graph = oracle::random_graph(random);
    StageKept kept(graph.ops().size(), graph.values().size(), 0);
    for (std::size_t stage = 0; stage < graph.ops().size(); ++stage) {
      for (const ValueId value : graph.values()) kept.at(stage, value) = random.chance(50) ? 1 : 0;
    }
    const Plan plan = plan_of(graph, fewest_runs(graph, kept, one_op_a_stage(graph)));
    const Verdict verdict = check(graph, plan);
    ASSERT_FALSE(verdict.broken) << describe(graph, *verdict.broken) << ", graph " << i;

    const auto kept_again = kept_of(graph, plan);
    ASSERT_TRUE(kept_again);
    const Plan again = plan_of(graph, fewest_runs(graph, *kept_again, one_op_a_stage(graph)));
    EXPECT_EQ(again, plan) << "graph " << i;
  }
}

TEST(CheckmateStages, KeepingEverythingIsTheBaseRun) {
  const Graph graph = unit_chain(5);
  const StageKept all(graph.ops().size(), graph.values().size(), 1);
  EXPECT_EQ(plan_of(graph, fewest_runs(graph, all, one_op_a_stage(graph))), base_run(graph));
}

TEST(CheckmateStages, AreNoneWhereFirstRunsAreOutOfOrder) {
  GraphBuilder build("two");
  build.op("a").makes("a", Bytes{1});
  build.op("b").makes("b", Bytes{1});
  const Graph graph = build.done();
  EXPECT_FALSE(kept_of(graph, {{Step::compute(OpId{1}), Step::compute(OpId{0})}}));
}

// 3T² + TE columns and 2T² + 3 + T(T−1) + 3TE + T + T(T−1) rows; T = 51, E = 99.
TEST(PublishedCheckmateModel, HasThePublishedSize) {
  SKIP_WITHOUT_SHARED_DATA();
  const Graph graph = CheckmateGolden().graph("VGG19");
  const CheckmateModel published = published_checkmate_model(graph, Bytes{51380224});
  EXPECT_EQ(published.program.column_count(), 12852U);
  EXPECT_EQ(published.program.row_count(), 25503U);
  const CheckmateModel ours = checkmate_model(graph, Bytes{51380224});
  EXPECT_LT(ours.program.column_count(), published.program.column_count() / 2);
  EXPECT_LT(ours.program.row_count(), published.program.row_count() / 4);
}

// Its accounting is stricter: at 4 bytes a chain of 4 costs 11; as published, a value that nothing
// uses again stays to the end of its stage.
TEST(PublishedCheckmateModel, IsNeverCheaperThanOurs) {
  SKIP_WITHOUT_HIGHS();
  for (const std::size_t n : {2U, 3U, 4U}) {
    const Graph graph = unit_chain(n);
    for (std::int64_t budget = 3; budget <= static_cast<std::int64_t>(n) + 2; ++budget) {
      const CheckmateModel model = published_checkmate_model(graph, Bytes{budget});
      const MilpAnswer answer = solve_milp(model.program, {});
      if (answer.status == MilpAnswer::Status::infeasible) continue;
      ASSERT_EQ(answer.status, MilpAnswer::Status::optimal);
      EXPECT_GE(*answer.bound + 1e-6,
                static_cast<double>(run("checkmate-ilp", graph, budget).cost.count()))
          << n << ", " << budget;
    }
  }
}

// Budget and optimal cost of the integer program (Jain et al., MLSys'20, section 4), computed from
// its rules a second time, outside this repository.
using Optima = std::vector<std::pair<std::int64_t, std::int64_t>>;

void expect_optima(const Graph& graph, const Optima& optima) {
  for (const auto& [budget, cost] : optima) {
    const Outcome outcome = run("checkmate-ilp", graph, budget);
    EXPECT_EQ(outcome.status, Status::optimal) << budget;
    EXPECT_EQ(outcome.cost, Cost{cost}) << budget;
    EXPECT_LE(outcome.peak, Bytes{budget});
  }
}

TEST(CheckmateIlp, ReachesEveryOptimumOfUnitChains) {
  SKIP_WITHOUT_HIGHS();
  expect_optima(unit_chain(4), {{6, 9}, {5, 10}, {4, 11}, {3, 15}});
  expect_optima(unit_chain(8),
                {{10, 17}, {9, 18}, {8, 19}, {7, 20}, {6, 21}, {5, 22}, {4, 26}, {3, 45}});
  EXPECT_EQ(run("checkmate-ilp", unit_chain(4), 2).status, Status::infeasible);
}

// Reached, not always proven: the time limit is there for the proofs.
TEST(LongCheckmateIlp, ReachesEveryOptimumOfAChainOfSixteen) {
  SKIP_WITHOUT_HIGHS();
  const Graph graph = unit_chain(16);
  Limits limits;
  limits.time = std::chrono::seconds(10);
  Optima optima{{6, 47}, {5, 53}, {4, 67}, {3, 153}};
  for (std::int64_t budget = 18; budget >= 7; --budget) optima.emplace_back(budget, 51 - budget);
  for (const auto& [budget, cost] : optima) {
    const Outcome outcome = run("checkmate-ilp", graph, budget, limits);
    EXPECT_EQ(outcome.cost, Cost{cost}) << budget;
    EXPECT_LE(*outcome.lower_bound, Cost{cost}) << budget;
  }
}

TEST(CheckmateIlp, ReachesThePublishedOptima) {
  SKIP_WITHOUT_HIGHS();
  SKIP_WITHOUT_SHARED_DATA();
  const CheckmateGolden golden;
  for (const char* model : {"test", "VGG16", "VGG19"}) {
    const Graph graph = golden.graph(model);
    Optima optima;
    for (const JsonValue entry : golden.root().at("exact_opt").at(model).members()) {
      optima.emplace_back(std::stoll(std::string(entry.key())), entry.amount());
    }
    SCOPED_TRACE(model);
    EXPECT_FALSE(optima.empty());
    expect_optima(graph, optima);
  }
  // One byte less than the largest op takes by itself, and one byte less than the plain run.
  EXPECT_EQ(run("checkmate-ilp", golden.graph("test"), 126167039).status, Status::infeasible);
  EXPECT_EQ(run("checkmate-ilp", golden.graph("test"), 164017151).cost, Cost{2801292288});
}

// The best plan in stages, by trying all there is to keep.
std::optional<Cost> cheapest_in_stages(const Graph& graph, Bytes budget) {
  std::vector<std::pair<std::size_t, ValueId>> cells;
  for (std::size_t stage = 1; stage < graph.ops().size(); ++stage) {
    for (const ValueId value : graph.values()) {
      if (!graph.resident(value) && graph.producer(value)->index < stage) {
        cells.emplace_back(stage, value);
      }
    }
  }
  if (cells.size() > 14) return std::nullopt;
  std::optional<Cost> best;
  for (std::uint32_t choice = 0; choice < std::uint32_t{1} << cells.size(); ++choice) {
    StageKept kept(graph.ops().size(), graph.values().size(), 0);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      kept.at(cells[i].first, cells[i].second) = static_cast<char>(choice >> i & 1U);
    }
    const Plan plan = plan_of(graph, fewest_runs(graph, kept, one_op_a_stage(graph)));
    const Replay replay = simulate(graph, plan);
    if (replay.peak <= budget && (!best || replay.cost < *best)) best = replay.cost;
  }
  return best;
}

TEST(CheckmateIlp, EqualsEveryPlanInStagesTriedOneByOne) {
  SKIP_WITHOUT_HIGHS();
  oracle::Random random(22);
  int compared = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = oracle::random_graph(random, {3, 5, 6});
    const Bytes least = oracle::smallest_peak(graph);
    const Bytes base_peak = simulate(graph, base_run(graph)).peak;
    for (Bytes budget = least; budget < base_peak; budget += Bytes{2}) {
      const auto best = cheapest_in_stages(graph, budget);
      if (!best) continue;
      SCOPED_TRACE(testing::Message() << "graph " << i << ", " << budget.count());
      const Problem problem{graph, Budget{budget}};
      const Findings ilp = checkmate_ilp(problem, {});
      ASSERT_TRUE(ilp.plan);
      const Cost cost = simulate(graph, *ilp.plan).cost;
      EXPECT_LE(cost, *best);  // less, where the start was a plan that is not in stages
      EXPECT_GE(cost, oracle::cheapest_plan(graph, budget)->cost);
      if (ilp.lower_bound) {
        EXPECT_LE(*ilp.lower_bound, *best);
        EXPECT_EQ(*ilp.lower_bound, cost);
      }

      for (const auto& method : {checkmate_lp, checkmate_lp_random}) {
        const Findings rounded = method(problem, {});
        EXPECT_LE(rounded.lower_bound.value_or(Cost{0}), *best);
        if (rounded.plan) {
          EXPECT_GE(simulate(graph, *rounded.plan).cost, *best);
        }
      }
      ++compared;
    }
    if (HasFailure()) FAIL();
  }
  EXPECT_GT(compared, 100);
}

// Where first runs may come in any stage, the program's own optimum is that of all plans, here.
TEST(CheckmateModel, OtherSchedulesReachTheExhaustiveOptimum) {
  SKIP_WITHOUT_HIGHS();
  oracle::Random random(25);
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    const Graph graph = oracle::random_graph(random, {2, 4, 5});
    const Bytes budget = oracle::smallest_peak(graph) + Bytes{1};
    if (budget >= base_peak(graph)) continue;
    ++compared;
    SCOPED_TRACE(i);
    const auto best = static_cast<double>(oracle::cheapest_plan(graph, budget)->cost.count());
    for (const auto schedule : {ImposedSchedule::cover_all, ImposedSchedule::cover_last}) {
      const CheckmateModel model = checkmate_model(graph, budget, schedule);
      const MilpAnswer answer = solve_milp(model.program, {});
      ASSERT_EQ(answer.status, MilpAnswer::Status::optimal);
      EXPECT_GE(*answer.bound * model.unit, best - 1e-3);
    }
  }
  EXPECT_GT(compared, 5);
}

TEST(CheckmateIlp, EndsWhenTheGapIsGoodEnough) {
  SKIP_WITHOUT_HIGHS();
  const Graph graph = unit_chain(8);
  Limits limits;
  limits.gap = 0.2;
  const Outcome outcome = run("checkmate-ilp", graph, 4, limits);  // the optimum is 26
  EXPECT_FALSE(outcome.stopped);
  EXPECT_LE(outcome.cost.count(), 1.2 * static_cast<double>(outcome.lower_bound->count()));
  EXPECT_LT(*outcome.lower_bound, Cost{26});
}

TEST(CheckmateIlp, FindsTheSmallestPeak) {
  SKIP_WITHOUT_HIGHS();
  const Outcome outcome = run("checkmate-ilp", unit_chain(6), std::nullopt);
  EXPECT_EQ(outcome.peak, Bytes{3});
  EXPECT_EQ(outcome.cost, Cost{28});  // 2N + 1 + N(N − 1)/2
  EXPECT_EQ(outcome.status, Status::optimal);
}

TEST(CheckmateIlp, EndsAtItsLimitsWithTheBestOfTheOthers) {
  SKIP_WITHOUT_HIGHS();
  const Graph graph = unit_chain(16);
  const std::atomic<bool> stop{true};
  Limits interrupted;
  interrupted.stop = &stop;
  EXPECT_TRUE(run("checkmate-ilp", graph, 9, interrupted).stopped);

  Limits no_time;
  no_time.time = std::chrono::seconds(0);
  EXPECT_TRUE(run("checkmate-ilp", graph, 9, no_time).stopped);

  Limits small;
  small.memory = Bytes{1000000};
  const Outcome too_large = run("checkmate-ilp", graph, 9, small);
  EXPECT_TRUE(too_large.stopped && too_large.too_large);
  EXPECT_EQ(too_large.cost, run("auto", graph, 9).cost);
}

// The pages' properties: relaxation ≤ optimum ≤ rounding, and more budget never costs more.
TEST(CheckmateLp, BoundsTheOptimumFromBothSides) {
  SKIP_WITHOUT_HIGHS();
  const Graph graph = unit_chain(8);
  const std::map<std::int64_t, std::int64_t> optima{{9, 18}, {8, 19}, {7, 20}, {6, 21}, {5, 22}};
  Cost last{0};
  for (const auto& [budget, optimum] : optima) {
    for (const char* solver : {"checkmate-lp", "checkmate-lp-random"}) {
      const Outcome outcome = run(solver, graph, budget);
      EXPECT_LE(*outcome.lower_bound, Cost{optimum}) << budget;
      ASSERT_TRUE(outcome.plan) << solver << " " << budget;
      EXPECT_GE(outcome.cost, Cost{optimum}) << budget;
      EXPECT_LE(outcome.peak, Bytes{budget});
    }
    const Cost bound = *run("checkmate-lp", graph, budget).lower_bound;
    if (last > Cost{0}) {
      EXPECT_LE(bound, last);
    }
    last = bound;
  }
}

TEST(Checkmate, SaysWhatIsMissingWithoutHighs) {
  if (milp_unavailable().empty()) GTEST_SKIP() << "this build has HiGHS";
  const Graph graph = unit_chain(3);
  for (const char* solver : {"checkmate-ilp", "checkmate-lp", "checkmate-lp-random"}) {
    try {
      run(solver, graph, 4);
      FAIL();
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("needs HiGHS"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace reprise
