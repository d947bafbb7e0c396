// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/runs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "tests/core/graphs.h"

namespace reprise {
namespace {

std::vector<Task> all_tasks(const Graph& graph) {
  std::vector<Task> tasks;
  for (const Solver& solver : solvers()) {
    if (solver.name.rfind("checkmate", 0) == 0) continue;  // seconds each
    for (const std::int64_t budget : {3, 5, 8}) {
      tasks.push_back({&graph, &solver, Budget{Bytes{budget}}});
    }
  }
  return tasks;
}

Run with_plan(std::int64_t peak, std::int64_t cost) {
  Run run;
  run.status = Status::feasible;
  run.peak = Bytes{peak};
  run.cost = Cost{cost};
  return run;
}

TEST(Runs, AreTheSameOnAnyNumberOfThreads) {
  const Graph graph = unit_chain(6);
  const std::vector<Task> tasks = all_tasks(graph);
  const auto run_on = [&](int threads) {
    std::vector<std::optional<reprise::Run>> runs(tasks.size());
    run_all(tasks, Limits{}, threads, [&](std::size_t task, reprise::Run run) {
      EXPECT_FALSE(runs[task]) << "handed over twice";
      runs[task] = std::move(run);
    });
    return runs;
  };
  const auto one = run_on(1);
  const auto four = run_on(4);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    ASSERT_TRUE(one[i] && four[i]) << tasks[i].solver->name;
    EXPECT_EQ(one[i]->status, four[i]->status) << tasks[i].solver->name;
    EXPECT_EQ(one[i]->peak, four[i]->peak) << tasks[i].solver->name;
    EXPECT_EQ(one[i]->cost, four[i]->cost) << tasks[i].solver->name;
  }
}

TEST(Runs, AreWholeOrMissingWhereTheyAreStopped) {
  const Graph graph = unit_chain(6);
  const std::vector<Task> tasks = all_tasks(graph);
  std::atomic<bool> stop{false};
  Limits limits;
  limits.stop = &stop;
  std::size_t handed = 0;
  run_all(tasks, limits, 1, [&](std::size_t, const reprise::Run&) { stop = ++handed == 2; });
  EXPECT_EQ(handed, 2U);
}

TEST(Runs, SayWhyASolverRefuses) {
  GraphBuilder build("bare");
  build.op("f").makes("f", Bytes{1});
  const Graph graph = build.done();
  const reprise::Run run = run_task({&graph, &find_solver("ogc"), Budget{}}, Limits{});
  EXPECT_EQ(run.refusal.rfind("needs phases", 0), 0U);
  EXPECT_FALSE(run.cost);
}

TEST(Runs, PassABugOn) {
  const Solver broken{
      "broken", "", "", [](const Problem&) { return std::string(); },
      [](const Problem&, const Limits&) -> Findings { throw std::logic_error("a bug"); }};
  const Graph graph = unit_chain(2);
  const std::vector<Task> tasks(5, Task{&graph, &broken, Budget{Bytes{1}}});
  EXPECT_THROW(run_all(tasks, Limits{}, 2, [](std::size_t, const reprise::Run&) {}),
               std::logic_error);
}

TEST(Runs, ReportOneAtATimeAndByName) {
  const Solver chatty{"chatty", "", "", [](const Problem&) { return std::string(); },
                      [](const Problem&, const Limits& limits) {
                        limits.progress("working");
                        return Findings{};
                      }};
  const Graph graph = unit_chain(2);
  const std::vector<Task> tasks(3, Task{&graph, &chatty, Budget{Bytes{1}}});
  std::vector<std::string> said;
  Limits limits;
  limits.progress = [&](std::string_view words) { said.emplace_back(words); };
  run_all(tasks, limits, 3, [](std::size_t, const reprise::Run&) {});
  EXPECT_EQ(said, std::vector<std::string>(3, "chatty: working"));
}

TEST(Runs, HaveTheSeedAndTheTechniquesOfTheirTask) {
  const Solver echo{"echo", "", "", [](const Problem&) { return std::string(); },
                    [](const Problem&, const Limits& limits) {
                      const bool drops = limits.techniques.has(Technique::drop);
                      Findings found;
                      found.smallest_peak = Bytes{static_cast<std::int64_t>(limits.seed)};
                      found.lower_bound = Cost{drops ? 1000 : 2000};
                      return found;
                    }};
  const Graph graph = unit_chain(2);
  Task task{&graph, &echo, Budget{Bytes{3}}, 7};
  EXPECT_EQ(run_task(task, Limits{}).smallest_peak, Bytes{7});
  EXPECT_EQ(run_task(task, Limits{}).lower_bound, Cost{1000});
  task.techniques.leave_out(Technique::drop);
  EXPECT_EQ(run_task(task, Limits{}).lower_bound, Cost{2000});
}

TEST(Milestones, FallToTheCostOfThePlan) {
  const Graph graph = unit_chain(16);
  const Task task{&graph, &find_solver("auto"), Budget{Bytes{5}}};
  Limits limits;
  limits.iterations = 20'000;
  const reprise::Run run = run_task(task, limits);
  ASSERT_FALSE(run.milestones.empty());
  EXPECT_EQ(run.milestones.back().cost, run.cost);
  EXPECT_LE(run.milestones.back().seconds, run.seconds);
  for (std::size_t i = 1; i < run.milestones.size(); ++i) {
    EXPECT_LT(run.milestones[i].cost, run.milestones[i - 1].cost);
    EXPECT_GE(run.milestones[i].seconds, run.milestones[i - 1].seconds);
  }
}

TEST(Milestones, AreNoneWhereTheSmallestPeakIsAskedFor) {
  const Graph graph = unit_chain(6);
  Limits limits;
  limits.iterations = 1000;
  const reprise::Run run = run_task({&graph, &find_solver("auto"), Budget{}}, limits);
  EXPECT_TRUE(run.cost);
  EXPECT_TRUE(run.milestones.empty());
}

TEST(SecondsUntil, AreThoseOfTheFirstPlanThatIsCheapEnough) {
  reprise::Run run;
  run.milestones = {{0.5, Cost{30}}, {1.5, Cost{20}}};
  EXPECT_EQ(seconds_until(run, Cost{31}), 0.5);
  EXPECT_EQ(seconds_until(run, Cost{29}), 1.5);
  EXPECT_EQ(seconds_until(run, Cost{19}), std::nullopt);
}

TEST(SharePlans, MakesCostsFallAsBudgetsGrow) {
  const std::vector<Budget> budgets{{}, {Bytes{10}}, {Bytes{20}}, {Bytes{30}}};
  // The smallest peak 8 serves 10; the plan for 30 needs 19 only and serves 20.
  std::vector<reprise::Run> runs{with_plan(8, 90), reprise::Run{}, with_plan(20, 70),
                                 with_plan(19, 60)};
  runs[2].lower_bound = Cost{60};
  share_plans(budgets, runs);
  EXPECT_EQ(runs[0].cost, Cost{90});
  EXPECT_EQ(runs[1].cost, Cost{90});
  EXPECT_EQ(runs[1].peak, Bytes{8});
  EXPECT_EQ(runs[1].status, Status::feasible);
  EXPECT_EQ(runs[2].cost, Cost{60});
  EXPECT_EQ(runs[2].status, Status::optimal);
  EXPECT_EQ(runs[3].peak, Bytes{19});
}

TEST(SharePlans, TakesTheOwnPlanAndThenTheSmallerPeakOnATie) {
  const std::vector<Budget> budgets{{Bytes{10}}, {Bytes{20}}, {Bytes{30}}, {Bytes{40}}};
  std::vector<reprise::Run> runs{with_plan(10, 50), with_plan(9, 50), with_plan(30, 50),
                                 reprise::Run{}};
  share_plans(budgets, runs);
  EXPECT_EQ(runs[0].peak, Bytes{10});
  EXPECT_EQ(runs[2].peak, Bytes{30});
  EXPECT_EQ(runs[3].peak, Bytes{9});
}

TEST(SharePlans, LeavesWhatNoPlanFits) {
  std::vector<reprise::Run> runs{reprise::Run{}, with_plan(20, 50)};
  runs[0].status = Status::infeasible;
  share_plans(std::vector<Budget>{{Bytes{10}}, {Bytes{20}}}, runs);
  EXPECT_EQ(runs[0].status, Status::infeasible);
  EXPECT_FALSE(runs[0].cost);
}

TEST(EvenBudgets, HoldBothEnds) {
  const auto budgets = even_budgets(Bytes{10}, Bytes{20}, 4);
  EXPECT_EQ(budgets, (std::vector<Bytes>{Bytes{10}, Bytes{13}, Bytes{16}, Bytes{20}}));
  EXPECT_EQ(even_budgets(Bytes{10}, Bytes{20}, 1), std::vector<Bytes>{Bytes{20}});
  EXPECT_EQ(even_budgets(Bytes{20}, Bytes{20}, 5), std::vector<Bytes>{Bytes{20}});
  EXPECT_EQ(even_budgets(Bytes{1}, Bytes{3}, 9).size(), 3U);
  const Bytes most{INT64_MAX};
  EXPECT_EQ(even_budgets(Bytes{0}, most, 10000).back(), most);
}

}  // namespace
}  // namespace reprise
