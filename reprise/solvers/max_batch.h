// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "reprise/solvers/solver.h"

namespace reprise {

struct MaxBatchProblem {
  const Graph& graph;         // at batch 1: see at_batch
  Bytes budget;               // of the peak
  std::optional<Cost> extra;  // allowed over the base cost, at batch 1; none: any cost
};

struct MaxBatch {
  std::int64_t batch = 0;    // the largest that a plan was found for; 0: not even one
  std::int64_t at_most = 0;  // proven: no plan fits a larger one
  std::int64_t plain = 0;    // the largest that the base run fits
  std::optional<Plan> plan;  // for at_batch(graph, batch); checked
  Bytes peak;
  Cost cost;
  std::int64_t tried = 0;  // batches that the solver was asked for
  double seconds = 0;
  bool stopped = false;  // from outside, before it was through
};

// The largest batch for which `solver` has a plan inside the budget with at most the extra cost;
// `limits` are of each batch tried. Tries the bound, then halves what is left between the largest
// that fits and the smallest that does not, so the solver's best can be missed where it misses a
// batch and meets a larger one. A plan serves every batch at which it fits: costs scale alike, so
// its overhead is the same. A batch at which amounts pass 64 bits counts as too large. Throws
// InputError where no value grows with the batch or the solver does not support the graph.
MaxBatch max_batch(const Solver& solver, const MaxBatchProblem& problem, const Limits& limits);

// No plan fits a larger batch: some op, or what is kept, would by itself pass the budget, or
// amounts pass 64 bits. None where nothing grows. O((ops + edges) · log batch).
std::optional<std::int64_t> batch_bound(const Graph& graph, Bytes budget);

// The cost of the forward ops. The graph has phases.
Cost forward_cost(const Graph& graph);

}  // namespace reprise
