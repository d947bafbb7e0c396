// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reprise/core/budget.h"
#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/solvers/bounds/smallest_peak.h"
#include "reprise/solvers/techniques.h"

namespace reprise {

enum class Objective : std::uint8_t { time, memory };

// What is asked. Pins (values to keep, ops to run once) are part of the graph: Graph::pinned.
struct Problem {
  const Graph& graph;
  Budget budget;
  Objective objective = Objective::time;
  const Plan* start = nullptr;  // a right plan to improve on, or none
};

// When to stop. A solver that is stopped returns the best it has.
struct Limits {
  std::optional<std::chrono::duration<double>> time;
  std::optional<std::int64_t> iterations;
  double gap = 0;  // good enough: cost above the proven bound, as a share of the bound
  std::uint64_t seed = 0;
  int threads = 1;
  Techniques techniques;                                 // of `auto`
  Bytes memory{std::int64_t{2} << 30};                   // of the solver's own
  const std::atomic<bool>* stop = nullptr;               // set from outside, e.g. by Ctrl-C
  std::function<void(std::string_view doing)> progress;  // now and then: "op 120 of 353"
  // Set by `solve`: hears what a plan that fits costs as soon as there is one, from any thread.
  std::function<void(Cost cost)> found;
};

enum class Status : std::uint8_t {
  optimal,     // the plan's cost meets lower_bound
  feasible,    // a plan that fits
  infeasible,  // proven: no plan fits
  limit,       // none found: the method's best does not fit, or it was stopped
};

// When a cost was reached.
struct Milestone {
  double seconds = 0;
  Cost cost;  // of a plan that fits

  friend bool operator==(const Milestone&, const Milestone&) = default;
};

// What is answered. No plan that fits is an answer too.
struct Outcome {
  Status status = Status::limit;
  std::optional<Plan> plan;  // there where optimal or feasible; checked
  Bytes peak;                // of the plan
  Cost cost;

  std::optional<Cost> lower_bound;  // on the total cost, among the plans of `bound_scope`
  std::string_view bound_scope = "any";
  std::optional<Bytes> smallest_peak;  // the smallest this solver reached, whether it fits or not
  PeakBound smallest_peak_bound;       // proven for any plan

  double seconds = 0;
  std::vector<Milestone>
      milestones;          // each cheaper than the one before; none for the smallest peak
  bool stopped = false;    // by a limit or from outside, before it was through
  bool too_large = false;  // stopped, since the graph is too large for its memory or its method
};

// What one algorithm finds: plans, of which the cheapest that fits is the answer. Bounds that every
// problem has are added by `solve`.
struct Findings {
  std::optional<Plan> plan;            // fits
  std::optional<Bytes> smallest_peak;  // over all plans it looked at
  std::optional<Cost> lower_bound;     // on the total cost, where it proves one …
  std::string_view bound_scope;        // … among these plans
  std::optional<PeakBound>
      peak_bound;  // on the peak of any plan, where it proves more than one op's
  bool stopped = false;
  bool too_large = false;  // stopped, since the graph is too large for its memory or its method
};

// One algorithm. `supports` is empty, or the reason why not.
struct Solver {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
  std::string (*supports)(const Problem&);
  Findings (*run)(const Problem&, const Limits&);
  bool in_auto = true;  // does `auto` ask it? Not what takes all the time it is given
};

// Every solver there is, in the order in which they are listed.
std::span<const Solver> solvers();

// The solver of that name. Throws InputError, with the nearest name.
const Solver& find_solver(std::string_view name);

// Runs a solver: where the base run fits the budget, or has the smallest peak there can be, that is
// the answer, whatever the solver; else what it finds, checked. Throws InputError where it does not
// support the problem or the start plan is wrong, std::logic_error where the solver's is.
Outcome solve(const Solver& solver, const Problem& problem, const Limits& limits);

std::string_view to_string(Status status);

}  // namespace reprise
