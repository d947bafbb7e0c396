// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "reprise/solvers/solver.h"

namespace reprise {

// Walks `forward`, in program order, and adds up the bytes made; the first of `candidates` (some of
// them, in the same order) at which the sum exceeds `threshold` is taken, and the sum starts
// again from 0 (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, algorithm 3, as
// Checkmate runs it: Jain et al., MLSys'20, section 6; program order is topological, which the
// artifact's walk is not).
std::vector<OpId> whenever_full(const Graph& graph, std::span<const OpId> forward,
                                std::span<const OpId> candidates, Bytes threshold);

// Keeps the values of the ops taken, as chen-sqrt does, for each threshold from 0 to 3 times what
// chen-sqrt-any takes, in 300 steps; the cheapest plan that fits. Thresholds that take the same
// ops count once. Needs phases. 300 plans at most, O(ops + edges) for each, log segments
// times as much for those that fit.
Findings chen_greedy(const Problem& problem, const Limits& limits);      // candidates: cut points
Findings chen_greedy_any(const Problem& problem, const Limits& limits);  // all forward ops

}  // namespace reprise
