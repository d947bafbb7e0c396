// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/store_cut_points.h"

#include "reprise/core/plan_from_kept.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/candidates.h"

namespace reprise {

Findings store_cut_points(const Problem& problem, const Limits&) {
  const Graph& graph = problem.graph;
  OpSet is_cut(graph.ops().size(), false);
  for (const OpId op : articulation_points(graph, forward_ops(graph))) is_cut[op] = true;

  KeptValues decision{ValueSet(graph.values().size(), false),
                      IdVector<OpId, std::uint32_t>(graph.ops().size())};
  std::uint32_t segment = 0;
  for (const OpId op : graph.ops()) {
    decision.segments[op] = segment;
    if (!is_cut[op]) continue;
    ++segment;
    for (const ValueId output : graph.outputs(op)) decision.kept[output] = true;
  }
  Candidates candidates(problem);
  candidates.offer(plan_from_kept(graph, decision));
  return std::move(candidates).best();
}

}  // namespace reprise
