// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/checkmate_ilp.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "reprise/core/simulator.h"
#include "reprise/solvers/best_of_published.h"
#include "reprise/solvers/candidates.h"
#include "reprise/solvers/checkmate_lp.h"

namespace reprise {
namespace {

constexpr int kAttempts = 3;             // to find a plan that fits though tolerances do not
constexpr double kRelativeError = 1e-7;  // of the solver's bound, and …
constexpr double kAbsoluteError = 1e-3;  // … in its units: well above its tolerances of 1e-9

class Search {
 public:
  Search(const Problem& problem, const Limits& limits, ImposedSchedule schedule)
      : problem_(problem),
        limits_(limits),
        schedule_(schedule),
        watch_(limits),
        candidates_(problem) {}

  Findings run() && {
    const Graph& graph = problem_.graph;
    start();
    if (!fits_memory(graph, schedule_, limits_.memory)) {
      candidates_.too_large();
    } else if (problem_.budget.bytes) {
      if (*problem_.budget.bytes >= smallest_peak_bound(graph).bytes) minimise_cost();
    } else {
      minimise_peak();
      minimise_cost();
    }
    const Cost cost = candidates_.cost();
    Findings found = std::move(candidates_).best();
    // A plan of the others need not be in stages, and may cost less than any that is.
    if (!found.plan || (lower_bound_ && cost >= *lower_bound_)) found.lower_bound = lower_bound_;
    found.bound_scope = schedule_ == ImposedSchedule::full ? "fixed-order" : "stages";
    return found;
  }

 private:
  // The best published plan, the relaxation's roundings among them.
  void start() {
    Problem from_nothing = problem_;
    from_nothing.start = nullptr;
    Limits some = limits_;
    if (limits_.time) some.time = *limits_.time / 4;
    candidates_.take(best_of_published(problem_, some));
    candidates_.take(checkmate_lp(from_nothing, some));
  }

  void minimise_peak() {
    if (candidates_.so_far().smallest_peak == smallest_peak_bound(problem_.graph).bytes) return;
    solve(checkmate_model(problem_.graph, std::nullopt, schedule_), "peak", 0);
  }

  void minimise_cost() {
    const Graph& graph = problem_.graph;
    const Bytes budget =
        problem_.budget.bytes ? *problem_.budget.bytes : *candidates_.so_far().smallest_peak;
    Bytes target = budget;
    // A point that fits within the solver's tolerances may be a plan that does not. Then its bound
    // is not believed either, and a little less is asked for.
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (watch_.must_stop()) return candidates_.stopped();
      const CheckmateModel model = checkmate_model(graph, target, schedule_);
      const double good_enough = limits_.gap * static_cast<double>(graph.base_cost().count());
      const auto [bound, peak] = solve(model, "cost", good_enough);
      if (peak && *peak > budget) {
        target = target - (*peak - budget);
        continue;
      }
      if (attempt == 0 && bound) {
        lower_bound_ =
            cost_bound(model, *bound - kRelativeError * std::abs(*bound) - kAbsoluteError);
      }
      return;
    }
  }

  struct Solved {
    std::optional<double> bound;
    std::optional<Bytes> peak;  // of the plan that the best point stands for
  };

  // Ends `good_enough` above the bound, in units of cost or bytes.
  Solved solve(const CheckmateModel& model, std::string_view what, double good_enough) {
    MilpQuery query;
    query.nodes = limits_.iterations;
    query.seed = limits_.seed;
    query.stop = limits_.stop;
    // Costs are multiples of the step: below it, the best is proven.
    query.gap = std::max(good_enough, 0.999 * static_cast<double>(model.step)) / model.unit;
    query.progress = [&](double bound, double best) {
      watch_.report(fmt::format("{} from {:.6g} to {:.6g}", what, bound, best));
    };
    if (const auto left = watch_.left()) query.seconds = left->count();
    start_from_best(model, query);
    const MilpAnswer answer = solve_milp(model.program, query);
    if (answer.status != MilpAnswer::Status::optimal &&
        answer.status != MilpAnswer::Status::infeasible) {
      candidates_.stopped();
    }
    if (answer.values.empty()) return {answer.bound, std::nullopt};
    Plan plan =
        plan_of(problem_.graph, fewest_runs(problem_.graph, rounded_kept(model, answer.values, 0.5),
                                            first_stages(model, answer.values)));
    return {answer.bound, candidates_.offer(std::move(plan))};
  }

  std::vector<std::size_t> first_stages(const CheckmateModel& model,
                                        std::span<const double> point) const {
    const std::size_t ops = problem_.graph.ops().size();
    std::vector<std::size_t> stages(ops, ops);
    for (std::size_t stage = ops; stage-- > 0;) {
      for (const OpId op : problem_.graph.ops()) {
        if (amount(model.runs.at(stage, op), point) >= 0.5) stages[op.index] = stage;
      }
    }
    return stages;
  }

  // Only the default schedule: there the stages of a plan are known.
  void start_from_best(const CheckmateModel& model, MilpQuery& query) const {
    if (!candidates_.so_far().plan || schedule_ != ImposedSchedule::full) return;
    const Graph& graph = problem_.graph;
    auto kept = kept_of(graph, *candidates_.so_far().plan);
    if (!kept) return;
    const StageRuns runs = fewest_runs(graph, *kept, one_op_a_stage(graph));
    const Plan plan = plan_of(graph, runs);
    kept = kept_of(graph, plan);
    const auto set = [&](Cell cell, char value) {
      if (!cell.is_column()) return;
      query.start_columns.push_back(cell.number());
      query.start_values.push_back(value);
    };
    for (std::size_t stage = 0; stage < graph.ops().size(); ++stage) {
      for (const OpId op : graph.ops()) set(model.runs.at(stage, op), runs.at(stage, op));
      for (const ValueId value : graph.values()) {
        set(model.kept.at(stage, value), kept->at(stage, value));
      }
    }
  }

  const Problem& problem_;
  const Limits& limits_;
  const ImposedSchedule schedule_;
  const Stopwatch watch_;
  Candidates candidates_;
  std::optional<Cost> lower_bound_;
};

}  // namespace

Findings checkmate_ilp(const Problem& problem, const Limits& limits) {
  return Search(problem, limits, ImposedSchedule::full).run();
}

Findings checkmate_ilp_cover_all(const Problem& problem, const Limits& limits) {
  return Search(problem, limits, ImposedSchedule::cover_all).run();
}

Findings checkmate_ilp_cover_last(const Problem& problem, const Limits& limits) {
  return Search(problem, limits, ImposedSchedule::cover_last).run();
}

}  // namespace reprise
