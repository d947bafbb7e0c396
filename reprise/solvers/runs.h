// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/solver.h"

namespace reprise {

// What to run: one solver on one graph at one budget. The rest of its limits is the same for all
// tasks.
struct Task {
  const Graph* graph;
  const Solver* solver;
  Budget budget;
  std::uint64_t seed = 0;
  Techniques techniques = {};
  std::shared_ptr<const Plan> start = {};  // to improve on, or none
};

// What came of a task.
struct Run {
  Status status = Status::limit;
  std::string refusal;        // why the solver can't take the graph; empty: it ran
  std::optional<Bytes> peak;  // of the plan, where there is one
  std::optional<Cost> cost;
  std::optional<Cost> lower_bound;
  std::string bound_scope;
  std::optional<Bytes> smallest_peak;
  double seconds = 0;
  std::vector<Milestone> milestones;
  std::shared_ptr<const Plan> plan;  // none where the run was read from a file
};

// When a plan that costs no more than this was found; none where the run has no such plan.
std::optional<double> seconds_until(const Run& run, Cost cost);

// Runs one task with `limits`, but its own seed and techniques. A graph that the solver does not
// support, or that is too much for it (amounts past 64 bits, memory), is a refusal.
Run run_task(const Task& task, Limits limits);

// Runs the tasks on `threads` threads, each with `limits`, and hands every run to `done` as it
// comes: in any order, one call at a time. limits.progress is called one at a time, too, with the
// solver's name before what it does. Where limits.stop is set, no task is begun, and what was
// under way is not handed over: a run is whole or missing.
void run_all(std::span<const Task> tasks, const Limits& limits, int threads,
             const std::function<void(std::size_t task, Run)>& done);

// Gives each point of a sweep, the runs of one solver on one graph, the cheapest of all their plans
// that fits its budget (ties: its own, then the smaller peak), so that more budget never costs
// more. `budgets` and `runs` are parallel; a run without a budget, for the smallest peak, serves
// and stays as it is.
void share_plans(std::span<const Budget> budgets, std::span<Run> runs);

// `count` budgets from `smallest` to `largest`, both included, evenly spaced; fewer where there are
// not so many whole numbers. One is the largest.
std::vector<Bytes> even_budgets(Bytes smallest, Bytes largest, std::size_t count);

}  // namespace reprise
