// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/runs.h"

#include <fmt/core.h>

#include <mutex>
#include <new>

#include "reprise/solvers/in_parallel.h"

namespace reprise {
namespace {

Run summary(Outcome outcome) {
  Run run;
  run.status = outcome.status;
  if (outcome.plan) {
    run.peak = outcome.peak;
    run.cost = outcome.cost;
    run.plan = std::make_shared<const Plan>(*std::move(outcome.plan));
  }
  run.lower_bound = outcome.lower_bound;
  run.bound_scope = outcome.bound_scope;
  run.smallest_peak = outcome.smallest_peak;
  run.seconds = outcome.seconds;
  run.milestones = std::move(outcome.milestones);
  return run;
}

Run refused(std::string reason) {
  Run run;
  run.refusal = std::move(reason);
  return run;
}

}  // namespace

std::optional<double> seconds_until(const Run& run, Cost cost) {
  for (const Milestone& reached : run.milestones) {
    if (reached.cost <= cost) return reached.seconds;
  }
  return std::nullopt;
}

Run run_task(const Task& task, Limits limits) {
  limits.seed = task.seed;
  limits.techniques = task.techniques;
  const Problem problem{*task.graph, task.budget, Objective::time, task.start.get()};
  if (std::string reason = task.solver->supports(problem); !reason.empty()) {
    return refused(std::move(reason));
  }
  try {
    return summary(solve(*task.solver, problem, limits));
  } catch (const InputError& error) {
    return refused(error.what());
  } catch (const std::bad_alloc&) {
    return refused("ran out of memory");
  }
}

void run_all(std::span<const Task> tasks, const Limits& limits, int threads,
             const std::function<void(std::size_t, Run)>& done) {
  std::mutex speaking;  // to the caller
  const auto stopped = [&] { return limits.stop != nullptr && limits.stop->load(); };
  in_parallel(tasks.size(), threads, [&](std::size_t i) {
    if (stopped()) return;
    Limits own = limits;
    if (limits.progress) {
      own.progress = [&](std::string_view doing) {
        const std::lock_guard lock(speaking);
        limits.progress(fmt::format("{}: {}", tasks[i].solver->name, doing));
      };
    }
    Run result = run_task(tasks[i], own);
    const std::lock_guard lock(speaking);
    if (!stopped()) done(i, std::move(result));
  });
}

void share_plans(std::span<const Budget> budgets, std::span<Run> runs) {
  const std::vector<Run> found(runs.begin(), runs.end());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!budgets[i].bytes) continue;
    const Run* const own = &found[i];
    const Run* best = own->cost ? own : nullptr;
    for (const Run& other : found) {
      if (!other.cost || !budgets[i].allows(*other.peak)) continue;
      const bool tie = best != nullptr && other.cost == best->cost;
      const bool better = tie ? best != own && *other.peak < *best->peak
                              : best == nullptr || *other.cost < *best->cost;
      if (better) best = &other;
    }
    if (best == nullptr || best == own) continue;
    runs[i].cost = best->cost;
    runs[i].peak = best->peak;
    runs[i].plan = best->plan;
    runs[i].milestones.clear();
    runs[i].status = best->cost == own->lower_bound ? Status::optimal : Status::feasible;
  }
}

std::vector<Bytes> even_budgets(Bytes smallest, Bytes largest, std::size_t count) {
  if (count <= 1 || largest <= smallest) return {largest};
  const auto gaps = static_cast<std::int64_t>(count) - 1;
  const std::int64_t range = (largest - smallest).count();
  std::vector<Bytes> budgets;
  for (std::int64_t i = 0; i <= gaps; ++i) {
    const Bytes budget = smallest + Bytes{static_cast<std::int64_t>(Wide{range} * i / gaps)};
    if (budgets.empty() || budget != budgets.back()) budgets.push_back(budget);
  }
  return budgets;
}

}  // namespace reprise
