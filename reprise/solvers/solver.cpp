// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/solver.h"

#include <fmt/core.h>

#include <mutex>
#include <stdexcept>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/solvers/candidates.h"

namespace reprise {
namespace {

// Takes the plan over, once the checker has passed it and agrees with the simulator.
void accept(Outcome& outcome, const Problem& problem, Plan plan) {
  const Verdict verdict = check(problem.graph, plan);
  if (verdict.broken) throw std::logic_error(describe(problem.graph, *verdict.broken));
  const Replay replay = simulate(problem.graph, plan);
  if (verdict.peak != replay.peak || verdict.cost != replay.cost) {
    throw std::logic_error("checker and simulator disagree");
  }
  if (!problem.budget.allows(replay.peak)) throw std::logic_error("the plan passes its budget");
  outcome.peak = replay.peak;
  outcome.cost = replay.cost;
  outcome.plan = std::move(plan);
}

// Keeps what is cheaper than all before. Costs at the smallest peak so far would be of different
// peaks, and no race.
void note(Outcome& outcome, const Problem& problem, Milestone reached) {
  std::vector<Milestone>& all = outcome.milestones;
  if (problem.budget.bytes && (all.empty() || reached.cost < all.back().cost)) {
    all.push_back(reached);
  }
}

// A wrong plan of a solver's is a bug of ours, not bad input.
Findings run(const Solver& solver, const Problem& problem, Limits limits, const Stopwatch& watch,
             Outcome& outcome) {
  std::mutex noting;
  limits.found = [&](Cost cost) {
    const std::lock_guard lock(noting);
    note(outcome, problem, {watch.seconds(), cost});
  };
  try {
    return solver.run(problem, limits);
  } catch (const PlanError& error) {
    throw std::logic_error(fmt::format("solver '{}': {}", solver.name, error.what()));
  }
}

// Cheap enough to be best? With a budget that is the bound on cost; without, on the peak as well.
bool meets_bounds(const Outcome& outcome, const Budget& budget) {
  const bool cheapest = outcome.cost == outcome.lower_bound;
  return cheapest && (budget.bytes || outcome.peak == outcome.smallest_peak_bound.bytes);
}

}  // namespace

const Solver& find_solver(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Solver& solver : solvers()) {
    if (solver.name == name) return solver;
    names.push_back(solver.name);
  }
  throw InputError(fmt::format("unknown solver {}{}", in_quotes(name), did_you_mean(name, names)));
}

Outcome solve(const Solver& solver, const Problem& problem, const Limits& limits) {
  if (const std::string reason = solver.supports(problem); !reason.empty()) {
    const std::string hint = " (use auto, or see reprise solvers for what each supports)";
    throw InputError(
        fmt::format("solver '{}' {}{}", solver.name, reason, solver.name == "auto" ? "" : hint));
  }
  if (problem.start != nullptr) simulate(problem.graph, *problem.start);
  const Stopwatch watch(limits);
  Outcome outcome;
  outcome.lower_bound = problem.graph.base_cost();
  outcome.smallest_peak_bound = smallest_peak_bound(problem.graph);

  Plan plain = base_run(problem.graph);
  const Bytes base_peak = simulate(problem.graph, plain).peak;
  const Bytes enough = problem.budget.bytes.value_or(outcome.smallest_peak_bound.bytes);
  if (base_peak <= enough) {
    outcome.smallest_peak = base_peak;
    accept(outcome, problem, std::move(plain));
  } else {
    Findings found = run(solver, problem, limits, watch, outcome);
    outcome.smallest_peak = found.smallest_peak;
    outcome.stopped = found.stopped;
    outcome.too_large = found.too_large;
    if (found.lower_bound && *found.lower_bound > *outcome.lower_bound) {
      outcome.lower_bound = found.lower_bound;
      outcome.bound_scope = found.bound_scope;
    }
    if (found.peak_bound && found.peak_bound->bytes > outcome.smallest_peak_bound.bytes) {
      outcome.smallest_peak_bound = *found.peak_bound;
    }
    if (found.plan) accept(outcome, problem, *std::move(found.plan));
  }

  outcome.seconds = watch.seconds();
  if (outcome.plan) {
    note(outcome, problem, {outcome.seconds, outcome.cost});
    outcome.status = meets_bounds(outcome, problem.budget) ? Status::optimal : Status::feasible;
  } else if (problem.budget.bytes && *problem.budget.bytes < outcome.smallest_peak_bound.bytes) {
    outcome.status = Status::infeasible;
    outcome.lower_bound.reset();
  }
  return outcome;
}

std::string_view to_string(Status status) {
  switch (status) {
    case Status::optimal: return "optimal";
    case Status::feasible: return "feasible";
    case Status::infeasible: return "infeasible";
    case Status::limit: return "limit";
  }
  return "";
}

}  // namespace reprise
