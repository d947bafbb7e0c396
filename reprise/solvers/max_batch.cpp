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

// What an op needs at a batch: still + batch * growing.
struct Need {
  Bytes still;
  Bytes growing;
};

Need need_alone(const Graph& graph, OpId op) {
  Need need{Bytes{0}, graph.workspace(op)};
  const auto add = [&](ValueId value) {
    (grows_with_batch(graph, value) ? need.growing : need.still) += graph.bytes(value);
  };
  for (const ValueId input : graph.inputs(op)) {
    if (!graph.resident(input)) add(input);
  }
  for (const ValueId output : graph.outputs(op)) {
    const auto input = graph.overwritten(output);
    const bool shared = input && grows_with_batch(graph, output) == grows_with_batch(graph, *input);
    if (!shared) add(output);
  }
  return need;
}

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
  Bytes kept;
  for (const ValueId value : graph.values()) {
    if (graph.kept(value) && !graph.resident(value)) kept += graph.bytes(value);
  }
  if (kept > budget) return 0;
  std::optional<std::int64_t> bound;
  for (const OpId op : graph.ops()) {
    const Need need = need_alone(graph, op);
    if (need.still > budget) return 0;
    if (need.growing == Bytes{0}) continue;
    const std::int64_t most = (budget - need.still).count() / need.growing.count();
    bound = std::min(bound.value_or(most), most);
  }
  return bound;
}

Cost forward_cost(const Graph& graph) {
  if (!graph.has_phases()) throw InputError("the graph has no phases, so no forward pass");
  Cost sum;
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::forward) sum += graph.cost(op);
  }
  return sum;
}

}  // namespace reprise
