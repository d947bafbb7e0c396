// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "reprise/core/plan_from_kept.h"
#include "reprise/solvers/candidates.h"

namespace reprise {

// What the methods share that think in forward graphs and cut them into segments.

// The forward ops that the loss depends on; where there is no loss op, those that a backward op
// does. Counters and the like, which nobody waits for, are not among them. O(ops + edges).
OpSet forward_of_loss(const Graph& graph);
// Those that any loss or backward op depends on: what only the backward pass reads is among them.
OpSet forward_of_the_rest(const Graph& graph);
std::vector<OpId> in_program_order(const OpSet& ops);

// Keeps the outputs of `ends`, forward ops in program order. Segments are numbered in program
// order, and each ends with one of them.
KeptValues keep_at(const Graph& graph, std::span<const OpId> ends);

// Offers the plan for `decision`. Then uses the room that is left: the last segments, whose values
// the backward pass reads first, are kept whole, as many as still fit (no peak above the decision's
// own, where the smallest is asked for); the number is found by bisection, until `watch` says stop.
// O(steps · log segments). Answers whether the decision's own plan fits.
bool offer_with_room(Candidates& candidates, const Problem& problem, const KeptValues& decision,
                     const Stopwatch& watch);

}  // namespace reprise
