// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/chen_sqrt.h"

#include "reprise/core/topology.h"
#include "reprise/solvers/segments.h"

namespace reprise {
namespace {

Findings keep_every_root_th(const Problem& problem, const Limits& limits,
                            std::span<const OpId> candidate_ops) {
  const Stopwatch watch(limits);
  Candidates candidates(problem);
  offer_with_room(candidates, problem, keep_at(problem.graph, every_root_th(candidate_ops)), watch);
  return std::move(candidates).best();
}

}  // namespace

std::vector<OpId> every_root_th(std::span<const OpId> candidates) {
  std::size_t stride = 1;
  while ((stride + 1) * (stride + 1) <= candidates.size()) ++stride;
  std::vector<OpId> taken;
  for (std::size_t i = stride; i <= candidates.size(); i += stride) {
    taken.push_back(candidates[i - 1]);
  }
  return taken;
}

Findings chen_sqrt(const Problem& problem, const Limits& limits) {
  const OpSet forward = forward_of_loss(problem.graph);
  return keep_every_root_th(problem, limits, articulation_points(problem.graph, forward));
}

Findings chen_sqrt_any(const Problem& problem, const Limits& limits) {
  return keep_every_root_th(problem, limits, in_program_order(forward_of_loss(problem.graph)));
}

}  // namespace reprise
