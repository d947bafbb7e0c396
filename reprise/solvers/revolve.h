// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "reprise/solvers/solver.h"

namespace reprise {

// Griewank and Walther's binomial method ("Algorithm 799: revolve", ACM TOMS 26, 2000).

// The fewest evaluations of forward steps that reverse a chain of `steps`, with room for
// `snapshots` (at least 1) of its states, the first included: r · steps − C(snapshots + r, r − 1),
// r the least with steps ≤ C(snapshots + r, r). The evaluation that goes with a step's own reversal
// is not counted.
std::int64_t binomial_evaluations(std::int64_t steps, std::int64_t snapshots);

// The plan with `snapshots` besides where the chain begins. The graph has phases.
//
// The steps of the chain are the stretches between the cut points of the forward graph. The forward
// pass keeps the values at some of them; when the backward pass misses a value, the chain is run
// again from the nearest cut point that is there, with snapshots on the way, and the stretch that
// was asked for stays until its last use. On a chain of n ops that backward ops read one by one,
// forward ops run binomial_evaluations(n + 1, snapshots + 1) times: the loss is the last step, and
// what the chain begins from is always there.
Plan revolve_plan(const Graph& graph, std::size_t snapshots);

// The largest number of snapshots whose plan the simulator says fits, found by bisection; for the
// smallest peak, numbers up to 32 and then powers of two are tried. Needs phases and cut points.
// O(steps of a plan · log cut points).
Findings revolve(const Problem& problem, const Limits& limits);

// Empty, or the reason why a graph with phases has no chain to work on.
std::string revolve_supports(const Graph& graph);

}  // namespace reprise
