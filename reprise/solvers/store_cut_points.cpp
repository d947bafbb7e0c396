// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/store_cut_points.h"

#include "reprise/core/plan_from_kept.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/candidates.h"
#include "reprise/solvers/segments.h"

namespace reprise {

Findings store_cut_points(const Problem& problem, const Limits&) {
  const Graph& graph = problem.graph;
  const std::vector<OpId> cuts = articulation_points(graph, forward_of_loss(graph));
  Candidates candidates(problem);
  candidates.offer(plan_from_kept(graph, keep_at(graph, cuts)));
  return std::move(candidates).best();
}

}  // namespace reprise
