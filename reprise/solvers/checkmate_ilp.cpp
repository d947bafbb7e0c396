// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/checkmate_ilp.h"

#include <fmt/core.h>

#include <algorithm>

#include "reprise/core/simulator.h"
#include "reprise/solvers/auto.h"
#include "reprise/solvers/candidates.h"

namespace reprise {
namespace {

class Search {
 public:
  Search(const Problem& problem, const Limits& limits, const CheckmateOptions& options)
      : problem_(problem),
        limits_(limits),
        options_(options),
        watch_(limits),
        candidates_(problem) {}

  Findings run() && {
    const Graph& graph = problem_.graph;
    start();
    if (!fits_memory(graph, options_.schedule, limits_.memory)) {
      candidates_.stopped();
    } else if (problem_.budget.bytes) {
      if (*problem_.budget.bytes >= smallest_peak_bound(graph).bytes) minimise_cost();
    } else {
      minimise_peak();
      minimise_cost();
    }
    Findings found = std::move(candidates_).best();
    found.lower_bound = lower_bound_;
    found.bound_scope = "fixed-order";
    return found;
  }

 private:
  // The best plan of the others.
  void start() {
    Limits some = limits_;
    if (limits_.time) some.time = *limits_.time / 4;
    Findings found = best_of_all(problem_, some);
    if (found.smallest_peak) candidates_.reached(*found.smallest_peak);
    if (found.plan) candidates_.offer(*std::move(found.plan));
  }

  void minimise_peak() {
    if (candidates_.so_far().smallest_peak == smallest_peak_bound(problem_.graph).bytes) return;
    solve(checkmate_model(problem_.graph, std::nullopt, options_.schedule), "peak");
  }

  void minimise_cost() {
    if (watch_.must_stop()) return candidates_.stopped();
    const auto budget = problem_.budget.bytes ? problem_.budget.bytes
                                              : candidates_.so_far().smallest_peak;
    const CheckmateModel model = checkmate_model(problem_.graph, budget, options_.schedule);
    const MilpAnswer answer = solve(model, "cost");
    if (!answer.bound) return;
    constexpr double kTolerance = 1e-6;  // the solver's own, relative
    lower_bound_ = cost_bound(model, *answer.bound - kTolerance * std::max(1.0, *answer.bound));
  }

  MilpAnswer solve(const CheckmateModel& model, std::string_view what) {
    MilpQuery query;
    query.nodes = limits_.iterations;
    query.seed = limits_.seed;
    query.stop = limits_.stop;
    query.relative_gap = options_.gap;
    query.absolute_gap = 0.999 * static_cast<double>(model.step) / model.unit;
    query.progress = [&](double bound, double best) {
      watch_.report(fmt::format("{} from {:.6g} to {:.6g}", what, bound, best));
    };
    if (limits_.time) query.seconds = limits_.time->count() - watch_.seconds();
    start_from_best(model, query);
    MilpAnswer answer = solve_milp(model.program, query);
    if (answer.status != MilpAnswer::Status::optimal &&
        answer.status != MilpAnswer::Status::infeasible) {
      candidates_.stopped();
    }
    if (!answer.values.empty()) offer(model, answer.values);
    return answer;
  }

  // Only the default schedule: there the stages of a plan are known.
  void start_from_best(const CheckmateModel& model, MilpQuery& query) const {
    if (!candidates_.so_far().plan || options_.schedule != ImposedSchedule::full) return;
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

  // Rounds what is kept; the runs follow from it.
  void offer(const CheckmateModel& model, const std::vector<double>& values) {
    const Graph& graph = problem_.graph;
    const std::size_t ops = graph.ops().size();
    const auto amount = [&](Cell cell) {
      if (!cell.is_column()) return cell == Cell::one() ? 1.0 : 0.0;
      return values[static_cast<std::size_t>(cell.number())];
    };
    StageKept kept(ops, graph.values().size(), 0);
    std::vector<std::size_t> first_stages(ops, ops);
    for (std::size_t stage = 0; stage < ops; ++stage) {
      for (const ValueId value : graph.values()) {
        kept.at(stage, value) = amount(model.kept.at(stage, value)) >= 0.5 ? 1 : 0;
      }
      for (const OpId op : graph.ops()) {
        if (first_stages[op.index] == ops && amount(model.runs.at(stage, op)) >= 0.5) {
          first_stages[op.index] = stage;
        }
      }
    }
    candidates_.offer(plan_of(graph, fewest_runs(graph, kept, first_stages)));
  }

  const Problem& problem_;
  const Limits& limits_;
  const CheckmateOptions options_;
  const Stopwatch watch_;
  Candidates candidates_;
  std::optional<Cost> lower_bound_;
};

}  // namespace

Findings checkmate_ilp(const Problem& problem, const Limits& limits,
                       const CheckmateOptions& options) {
  return Search(problem, limits, options).run();
}

Findings checkmate_ilp(const Problem& problem, const Limits& limits) {
  return checkmate_ilp(problem, limits, CheckmateOptions{});
}

}  // namespace reprise
