// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/published.h"
#include "cli/subjects.h"
#include "reprise/solvers/runs.h"

namespace reprise::cli {

// What is measured: `auto` on every graph at every budget with every seed; then the same with one
// technique left out after the other.
struct Bench {
  std::vector<Subject> subjects;
  std::vector<std::string> budgets;  // as named
  std::vector<std::uint64_t> seeds;
  std::vector<const TechniqueWords*> left_out;  // in turn
  std::vector<Task> tasks;  // with all, then without each; by subject, then budget, then seed
  std::vector<std::optional<Run>> runs;

  // The runs of one graph at one budget, a seed each.
  std::span<const std::optional<Run>> at(std::size_t subject, std::size_t budget) const {
    return std::span(runs).subspan((subject * budgets.size() + budget) * seeds.size(),
                                   seeds.size());
  }
  const Task& task(std::size_t subject, std::size_t budget) const {
    return tasks[(subject * budgets.size() + budget) * seeds.size()];
  }
};

// One graph at one budget, over all seeds that were run.
struct Case {
  std::size_t runs = 0;
  std::size_t plans = 0;
  std::optional<Cost> best;
  std::optional<Cost> worst;              // none where a seed found no plan
  std::optional<Cost> bound;              // the best that was proven
  std::string_view status;                // of the best; "not run" where nothing was
  std::optional<double> seconds_to_near;  // the medians of the seeds that found a plan
  std::optional<double> seconds_to_best;
};
Case case_of(std::span<const std::optional<Run>> runs, const Graph& graph);

// When a run that has a plan found it; and when it found the first with at most 5 % more overhead.
double seconds_to_best(const Run& run);
double seconds_to_near(const Run& run, const Graph& graph);

// What a technique earns: how much is lost without it, over all pairs of runs that differ in
// nothing else.
struct Earned {
  std::string_view technique;
  std::string_view what;
  std::size_t pairs = 0;
  std::size_t plans = 0;           // pairs in which only the run with it has one
  std::optional<double> overhead;  // that is saved, a mean
  std::optional<double> bound;     // that is proven more, as an overhead, a mean
  // How many times as long it takes to come near what the run with it ended with: a geometric mean,
  // in which a run that never does counts with all its time.
  std::optional<double> time;
};
std::vector<Earned> earned(const Bench& bench);

}  // namespace reprise::cli
