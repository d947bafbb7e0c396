// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <initializer_list>

#include "reprise/solvers/auto.h"
#include "reprise/solvers/checkmate_ilp.h"
#include "reprise/solvers/checkmate_lp.h"
#include "reprise/solvers/chen_greedy.h"
#include "reprise/solvers/chen_sqrt.h"
#include "reprise/solvers/lower_set.h"
#include "reprise/solvers/milp/milp.h"
#include "reprise/solvers/ogc.h"
#include "reprise/solvers/revolve.h"
#include "reprise/solvers/solver.h"
#include "reprise/solvers/store_all.h"
#include "reprise/solvers/store_cut_points.h"
#include "reprise/solvers/store_last.h"

namespace reprise {
namespace {

// Reasons why not, empty where there is none.
std::string_view no_phases(const Problem& problem) {
  return problem.graph.has_phases() ? "" : "needs phases: which ops are forward, which backward";
}

std::string_view no_start(const Problem& problem) {
  return problem.start == nullptr ? "" : "can't start from a plan";
}

std::string_view no_memory_objective(const Problem& problem) {
  return problem.objective == Objective::time ? "" : "has no memory objective";
}

std::string first_of(std::initializer_list<std::string_view> reasons) {
  for (const std::string_view reason : reasons) {
    if (!reason.empty()) return std::string(reason);
  }
  return "";
}

std::string any_graph(const Problem& problem) { return first_of({no_memory_objective(problem)}); }

std::string any_graph_no_start(const Problem& problem) {
  return first_of({no_start(problem), no_memory_objective(problem)});
}

std::string with_phases(const Problem& problem) {
  return first_of({no_phases(problem), no_start(problem), no_memory_objective(problem)});
}

std::string with_phases_any_objective(const Problem& problem) {
  return first_of({no_phases(problem), no_start(problem)});
}

std::string any_graph_with_highs(const Problem& problem) {
  return first_of({milp_unavailable(), no_memory_objective(problem)});
}

std::string any_graph_with_highs_no_start(const Problem& problem) {
  return first_of({milp_unavailable(), no_start(problem), no_memory_objective(problem)});
}

std::string a_chain(const Problem& problem) {
  const std::string reason = with_phases(problem);
  return reason.empty() ? revolve_supports(problem.graph) : reason;
}

constexpr std::array kSolvers{
    Solver{"auto", "start plans, a search among all plans, and a proven bound", "", any_graph,
           search_and_prove, false},
    Solver{"store-all", "every op once, everything kept until its last use", "", any_graph_no_start,
           store_all},
    Solver{"store-last", "nothing kept for the backward pass, all computed again for each op",
           "Jain et al., MLSys'20", with_phases, store_last},
    Solver{"store-cut-points", "the articulation points of the forward graph are kept",
           "Jain et al., MLSys'20", with_phases, store_cut_points},
    Solver{"chen-sqrt", "every √n-th cut point is kept", "Chen et al., 2016", with_phases,
           chen_sqrt},
    Solver{"chen-sqrt-any", "every √n-th forward op is kept", "Chen et al., 2016", with_phases,
           chen_sqrt_any},
    Solver{"chen-greedy", "cut points are kept, each after so many bytes", "Chen et al., 2016",
           with_phases, chen_greedy},
    Solver{"chen-greedy-any", "forward ops are kept, each after so many bytes", "Chen et al., 2016",
           with_phases, chen_greedy_any},
    Solver{"revolve", "snapshots on the chain of cut points, placed by binomials",
           "Griewank and Walther, 2000", a_chain, revolve},
    Solver{"ogc", "few bytes kept and no large segment between them", "Feng and Huang, CVPR'21",
           with_phases, ogc},
    Solver{"checkmate-ilp", "an integer program over all plans in stages, within the time limit",
           "Jain et al., MLSys'20", any_graph_with_highs, checkmate_ilp, false},
    Solver{"checkmate-ilp-cover-all", "the same, with first runs in any stage",
           "Jain et al., MLSys'20", any_graph_with_highs, checkmate_ilp_cover_all, false},
    Solver{"checkmate-ilp-cover-last",
           "the same, where ops that nobody needs the result of run once", "Jain et al., MLSys'20",
           any_graph_with_highs, checkmate_ilp_cover_last, false},
    Solver{"checkmate-lp", "its relaxation, rounded by thresholds; proves a bound",
           "Jain et al., MLSys'20", any_graph_with_highs_no_start, checkmate_lp, false},
    Solver{"checkmate-lp-random", "its relaxation, rounded by the toss of a coin, many times",
           "Jain et al., MLSys'20", any_graph_with_highs_no_start, checkmate_lp_random, false},
    Solver{"lower-set", "segments by dynamic programming over the ancestors of each op",
           "Kusumoto et al., NeurIPS'19", with_phases_any_objective, lower_set},
    Solver{"lower-set-exact", "the same over all lower sets of the forward ops",
           "Kusumoto et al., NeurIPS'19", with_phases_any_objective, lower_set_exact},
};

}  // namespace

std::span<const Solver> solvers() { return kSolvers; }

}  // namespace reprise
