// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_results.h"

#include <algorithm>
#include <cmath>

#include "cli/report.h"
#include "cli/runs.h"

namespace reprise::cli {
namespace {

// The upper one where there are two in the middle.
std::optional<double> median(std::vector<double> numbers) {
  if (numbers.empty()) return std::nullopt;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

class Mean {
 public:
  void add(double number) {
    sum_ += number;
    ++count_;
  }
  std::optional<double> get() const {
    return count_ == 0 ? std::nullopt : std::optional(sum_ / static_cast<double>(count_));
  }

 private:
  double sum_ = 0;
  std::size_t count_ = 0;
};

// At most 5 % more overhead than `cost` has.
Cost near(Cost cost, const Graph& graph) {
  return cost + Cost{(cost - graph.base_cost()).count() / 20};
}

// How many times as long `without` takes to come near the cost that `with` ended with.
double slowdown(const Run& with, const Run& without, const Graph& graph) {
  constexpr double kShortest = 1e-3;  // less is noise
  const double fast = seconds_to_near(with, graph);
  const double slow = seconds_until(without, near(*with.cost, graph)).value_or(without.seconds);
  return std::max(slow, kShortest) / std::max(fast, kShortest);
}

}  // namespace

double seconds_to_best(const Run& run) {
  return seconds_until(run, *run.cost).value_or(run.seconds);
}

double seconds_to_near(const Run& run, const Graph& graph) {
  return seconds_until(run, near(*run.cost, graph)).value_or(run.seconds);
}

Case case_of(std::span<const std::optional<Run>> runs, const Graph& graph) {
  Case all;
  all.status = "not run";
  std::vector<double> to_near;
  std::vector<double> to_best;
  for (const std::optional<Run>& run : runs) {
    if (!run) continue;
    ++all.runs;
    if (!all.best) all.status = status_word(*run);
    if (run->lower_bound) all.bound = std::max(all.bound.value_or(Cost{0}), *run->lower_bound);
    if (!run->cost) continue;
    ++all.plans;
    all.best = std::min(all.best.value_or(*run->cost), *run->cost);
    all.worst = std::max(all.worst.value_or(*run->cost), *run->cost);
    to_near.push_back(seconds_to_near(*run, graph));
    to_best.push_back(seconds_to_best(*run));
  }
  if (all.best) all.status = to_string(all.best == all.bound ? Status::optimal : Status::feasible);
  if (all.plans < all.runs) all.worst.reset();
  all.seconds_to_near = median(std::move(to_near));
  all.seconds_to_best = median(std::move(to_best));
  return all;
}

std::vector<Earned> earned(const Bench& bench) {
  std::vector<Earned> rows;
  const std::size_t whole = bench.runs.size() / (1 + bench.left_out.size());
  for (std::size_t t = 0; t < bench.left_out.size(); ++t) {
    Earned row{bench.left_out[t]->name, bench.left_out[t]->what, 0, 0, {}, {}, {}};
    Mean overhead;
    Mean bound;
    Mean log_time;
    for (std::size_t i = 0; i < whole; ++i) {
      const std::optional<Run>& with = bench.runs[i];
      const std::optional<Run>& without = bench.runs[(1 + t) * whole + i];
      if (!with || !without) continue;
      ++row.pairs;
      const Graph& graph = *bench.tasks[i].graph;
      const auto add_difference = [&](Mean& mean, std::optional<Cost> more,
                                      std::optional<Cost> less) {
        if (!more || !less || graph.base_cost() == Cost{0}) return;
        mean.add(*over(*more, graph.base_cost()) - *over(*less, graph.base_cost()));
      };
      add_difference(overhead, without->cost, with->cost);
      add_difference(bound, with->lower_bound, without->lower_bound);
      if (with->cost && !without->cost) ++row.plans;
      if (with->cost) log_time.add(std::log(slowdown(*with, *without, graph)));
    }
    row.overhead = overhead.get();
    row.bound = bound.get();
    if (const auto mean = log_time.get()) row.time = std::exp(*mean);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace reprise::cli
