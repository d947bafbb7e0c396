// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/max_batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "reprise/core/batch.h"
#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/solvers/candidates.h"

namespace reprise {
namespace {

bool fits_at(std::int64_t batch, const Plan& plan, const MaxBatchProblem& problem) try {
  return simulate(at_batch(problem.graph, batch), plan).peak <= problem.budget;
} catch (const OverflowError&) {
  return false;
}

// The largest batch in [fits, at_most] at which `plan` keeps the budget, as it does at `fits`.
std::int64_t largest_for(const Plan& plan, const MaxBatchProblem& problem, std::int64_t fits,
                         std::int64_t at_most) {
  while (fits < at_most) {
    const std::int64_t middle = at_most - (at_most - fits) / 2;
    if (fits_at(middle, plan, problem)) {
      fits = middle;
    } else {
      at_most = middle - 1;
    }
  }
  return fits;
}

class Search {
 public:
  Search(const Solver& solver, const MaxBatchProblem& problem, const Limits& limits)
      : solver_(solver), problem_(problem), limits_(limits), watch_(limits) {
    const auto bound = batch_bound(problem.graph, problem.budget);
    if (!bound) throw InputError("no value of the graph grows with the batch: any batch fits");
    answer_.at_most = std::min(*bound, INT64_MAX - 1);  // larger ones pass 64 bits
    too_large_ = answer_.at_most + 1;
  }

  MaxBatch run() && {
    Plan plain = base_run(problem_.graph);
    if (answer_.at_most >= 1 && fits_at(1, plain, problem_)) {
      answer_.plain = largest_for(plain, problem_, 1, answer_.at_most);
    }
    attempt(answer_.at_most);
    if (answer_.plain > answer_.batch) accept(std::move(plain), answer_.plain);
    while (too_large_ - answer_.batch > 1 && !stopped()) {
      attempt(answer_.batch + (too_large_ - answer_.batch) / 2);
    }
    answer_.stopped = too_large_ - answer_.batch > 1;
    answer_.seconds = watch_.seconds();
    return std::move(answer_);
  }

 private:
  bool stopped() const { return limits_.stop != nullptr && limits_.stop->load(); }

  void attempt(std::int64_t batch) try {
    if (batch == 0) return;
    const Graph graph = at_batch(problem_.graph, batch);
    Limits limits = limits_;
    limits.progress = [&](std::string_view doing) {
      watch_.report(fmt::format("batch {}, between {} and {}, {}: {}", batch, answer_.batch,
                                too_large_ - 1, solver_.name, doing));
    };
    ++answer_.tried;
    Outcome outcome = solve(solver_, {graph, Budget{problem_.budget}}, limits);
    if (outcome.plan && allows(outcome.cost - graph.base_cost(), batch)) {
      accept(*std::move(outcome.plan), batch);
    } else if (!stopped()) {
      too_large_ = batch;
    }
  } catch (const OverflowError&) {
    too_large_ = batch;
  }

  // Costs are multiples of the batch.
  bool allows(Cost extra, std::int64_t batch) const {
    return !problem_.extra || extra.count() / batch <= problem_.extra->count();
  }

  void accept(Plan plan, std::int64_t batch) {
    answer_.batch = largest_for(plan, problem_, batch, too_large_ - 1);
    const Verdict verdict = check(at_batch(problem_.graph, answer_.batch), plan);
    if (verdict.broken || verdict.peak > problem_.budget) {
      throw std::logic_error("checker and simulator disagree");
    }
    answer_.peak = verdict.peak;
    answer_.cost = verdict.cost;
    answer_.plan = std::move(plan);
  }

  const Solver& solver_;
  const MaxBatchProblem& problem_;
  const Limits& limits_;
  Stopwatch watch_;
  MaxBatch answer_;
  std::int64_t too_large_ = 0;  // the smallest batch that is
};

}  // namespace

MaxBatch max_batch(const Solver& solver, const MaxBatchProblem& problem, const Limits& limits) {
  return Search(solver, problem, limits).run();
}

std::optional<std::int64_t> batch_bound(const Graph& graph, Bytes budget) {
  const auto may_fit = [&](std::int64_t batch) {
    try {
      return smallest_peak_bound(at_batch(graph, batch)).bytes <= budget;
    } catch (const OverflowError&) {
      return false;
    }
  };
  Bytes growing;
  for (const OpId op : graph.ops()) growing += graph.workspace(op);
  for (const ValueId value : graph.values()) {
    if (grows_with_batch(graph, value)) growing += graph.bytes(value);
  }
  if (!may_fit(1)) return 0;
  if (growing == Bytes{0}) return std::nullopt;
  std::int64_t fits = 1;
  while (fits <= INT64_MAX / 2 && may_fit(2 * fits)) fits *= 2;
  for (std::int64_t step = fits / 2; step > 0; step /= 2) {
    if (may_fit(fits + step)) fits += step;
  }
  return fits;
}

Cost forward_cost(const Graph& graph) {
  Cost sum;
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::forward) sum += graph.cost(op);
  }
  return sum;
}

}  // namespace reprise
