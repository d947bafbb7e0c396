// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/checkmate_lp.h"

#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <random>

#include "reprise/core/lifetimes.h"
#include "reprise/solvers/candidates.h"
#include "reprise/solvers/checkmate/model.h"

namespace reprise {
namespace {

class Relaxation {
 public:
  // Calls `offer` with what to keep, as often as it likes.
  using Offer = std::function<void(const StageKept&)>;
  using Round = std::function<void(const CheckmateModel&, std::span<const double>, const Offer&)>;

  Relaxation(const Problem& problem, const Limits& limits, Round round)
      : problem_(problem),
        limits_(limits),
        round_(std::move(round)),
        watch_(limits),
        candidates_(problem) {}

  Findings run() && {
    const Graph& graph = problem_.graph;
    candidates_.offer(base_run(graph));  // what keeping everything comes to
    if (!fits_memory(graph, ImposedSchedule::full, limits_.memory)) {
      candidates_.too_large();
      return std::move(candidates_).best();
    }
    std::optional<Bytes> budget = problem_.budget.bytes;
    if (!budget) {
      solve(std::nullopt);
      budget = *candidates_.so_far().smallest_peak;
    }
    std::optional<Cost> lower_bound;
    if (*budget >= smallest_peak_bound(graph).bytes) {
      lower_bound = solve(*budget);
      solve(hundredths(*budget, 90));
    }
    Findings found = std::move(candidates_).best();
    found.lower_bound = lower_bound;
    found.bound_scope = "fixed-order";
    return found;
  }

 private:
  // The bound that the relaxation proves.
  std::optional<Cost> solve(std::optional<Bytes> budget) {
    if (watch_.must_stop()) {
      candidates_.stopped();
      return std::nullopt;
    }
    watch_.report(budget ? "relaxing the cost" : "relaxing the peak");
    const CheckmateModel model = checkmate_model(problem_.graph, budget);
    MilpQuery query;
    query.relaxed = true;
    query.seed = limits_.seed;
    query.stop = limits_.stop;
    if (const auto left = watch_.left()) query.seconds = left->count();
    const MilpAnswer answer = solve_milp(model.program, query);
    if (answer.status == MilpAnswer::Status::stopped) candidates_.stopped();
    if (!answer.values.empty()) {
      const std::vector<std::size_t> first_stages = one_op_a_stage(problem_.graph);
      round_(model, answer.values, [&](const StageKept& kept) {
        candidates_.offer(plan_of(problem_.graph, fewest_runs(problem_.graph, kept, first_stages)));
      });
    }
    if (answer.row_duals.empty()) return std::nullopt;
    return cost_bound(model, dual_bound(model.program, answer.row_duals));
  }

  const Problem& problem_;
  const Limits& limits_;
  const Round round_;
  const Stopwatch watch_;
  Candidates candidates_;
};

}  // namespace

Findings checkmate_lp(const Problem& problem, const Limits& limits) {
  return Relaxation(problem, limits,
                    [](const CheckmateModel& model, std::span<const double> point,
                       const Relaxation::Offer& offer) {
                      for (int tenths = 9; tenths >= 1; --tenths) {
                        offer(rounded_kept(model, point, tenths / 10.0));
                      }
                    })
      .run();
}

Findings checkmate_lp_random(const Problem& problem, const Limits& limits) {
  std::mt19937_64 random(limits.seed);
  const auto uniform = [&] { return std::ldexp(static_cast<double>(random() >> 11), -53); };
  const Stopwatch watch(limits);
  return Relaxation(problem, limits,
                    [&](const CheckmateModel& model, std::span<const double> point,
                        const Relaxation::Offer& offer) {
                      StageKept kept = rounded_kept(model, point, 0.5);
                      for (std::int64_t left = limits.iterations.value_or(100); left > 0; --left) {
                        if (watch.must_stop()) return;
                        for (std::size_t stage = 0; stage < kept.stages(); ++stage) {
                          for (const ValueId value : kept.ids()) {
                            const Cell cell = model.kept.at(stage, value);
                            if (cell.is_column()) {
                              kept.at(stage, value) = uniform() < amount(cell, point) ? 1 : 0;
                            }
                          }
                        }
                        offer(kept);
                      }
                    })
      .run();
}

}  // namespace reprise
