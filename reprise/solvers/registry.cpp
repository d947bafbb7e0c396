// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "reprise/solvers/auto.h"
#include "reprise/solvers/lower_set.h"
#include "reprise/solvers/solver.h"
#include "reprise/solvers/store_all.h"
#include "reprise/solvers/store_cut_points.h"
#include "reprise/solvers/store_last.h"

namespace reprise {
namespace {

std::string any_graph(const Problem& problem) {
  if (problem.objective == Objective::memory) return "has no memory objective";
  return "";
}

std::string any_graph_no_start(const Problem& problem) {
  if (problem.start != nullptr) return "can't start from a plan";
  return any_graph(problem);
}

std::string with_phases_any_objective(const Problem& problem) {
  if (!problem.graph.has_phases()) return "needs phases: which ops are forward, which backward";
  return problem.start != nullptr ? "can't start from a plan" : "";
}

std::string with_phases(const Problem& problem) {
  if (!problem.graph.has_phases()) return "needs phases: which ops are forward, which backward";
  return any_graph_no_start(problem);
}

constexpr std::array kSolvers{
    Solver{"auto", "the best of all others", "", any_graph, best_of_all},
    Solver{"store-all", "every op once, everything kept until its last use", "", any_graph_no_start,
           store_all},
    Solver{"store-last", "nothing kept for the backward pass, all computed again for each op",
           "Jain et al., MLSys'20", with_phases, store_last},
    Solver{"store-cut-points", "the articulation points of the forward graph are kept",
           "Jain et al., MLSys'20", with_phases, store_cut_points},
    Solver{"lower-set", "segments by dynamic programming over the ancestors of each op",
           "Kusumoto et al., NeurIPS'19", with_phases_any_objective, lower_set},
    Solver{"lower-set-exact", "the same over all lower sets of the forward ops",
           "Kusumoto et al., NeurIPS'19", with_phases_any_objective, lower_set_exact},
};

}  // namespace

std::span<const Solver> solvers() { return kSolvers; }

}  // namespace reprise
