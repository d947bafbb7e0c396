// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/moments.h"

#include <algorithm>
#include <utility>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/core/topology.h"

namespace reprise {
namespace {

constexpr double kNearBudget = 0.9;
constexpr std::size_t kTops = 50;           // about as many as a plan may have
constexpr std::size_t kMostOthers = 24;     // that do not stand out and are tried all the same
constexpr double kMore = 1e-6;              // a candidate proves so much more, or is left out
constexpr std::size_t kMostOps = 12;        // of a chain
constexpr std::size_t kMostSize = 100'000;  // … its factors
// Of a call, about in factors seen; each may take twice as much as the one before.
constexpr std::int64_t kFirstEffort = 50'000'000;
constexpr std::int64_t kMostEffort = 800'000'000;

// What a step of a chain takes.
std::int64_t effort_of_step(const Chain& chain) {
  constexpr std::int64_t kBeside = 5'000;  // what there is to do for small ones, too
  return static_cast<std::int64_t>(chain.size()) + kBeside;
}

struct FirstRun {
  OpId op;
  Bytes in_use;
  bool is_top;  // no run close by takes more
};

std::vector<FirstRun> first_runs(const Graph& graph, const PlanOrder& plan) {
  const Plan steps = with_earliest_frees(graph, plan.order);
  const Replay replay = simulate(graph, steps);
  std::vector<Bytes> in_use;  // of a run
  for (std::size_t i = 0; i < steps.steps.size(); ++i) {
    if (steps.steps[i].kind() == StepKind::compute) in_use.push_back(replay.in_use[i]);
  }
  const std::size_t close = 1 + plan.order.size() / kTops;
  std::vector<FirstRun> runs;
  OpSet has_run(graph.ops().size(), false);
  for (std::size_t i = 0; i < plan.order.size(); ++i) {
    const OpId op = plan.order[i];
    if (has_run[op]) continue;
    has_run[op] = true;
    const auto from = in_use.begin() + static_cast<std::ptrdiff_t>(i - std::min(i, close));
    const auto to =
        in_use.begin() + static_cast<std::ptrdiff_t>(std::min(i + close + 1, plan.order.size()));
    runs.push_back({op, in_use[i], in_use[i] == *std::max_element(from, to)});
  }
  return runs;
}

}  // namespace

// The moments at which the plan is near the budget: candidates are those that stand out, the
// highest first.
void Moments::find_candidates(const PlanOrder& plan, OpId first) {
  const bool is_new = seen_.empty();
  if (is_new) {
    seen_ = OpSet(graph_.ops().size(), false);
    seen_[first] = true;
  }
  std::vector<FirstRun> runs = first_runs(graph_, plan);
  std::stable_sort(runs.begin(), runs.end(),
                   [](const FirstRun& a, const FirstRun& b) { return a.in_use < b.in_use; });
  const double near = kNearBudget * static_cast<double>(budget_.count());
  for (const FirstRun& run : runs) {
    if (seen_[run.op] || static_cast<double>(run.in_use.count()) < near) continue;
    seen_[run.op] = true;
    (run.is_top ? candidates_ : others_).push_back(run.op);
    if (run.is_top) trial_.reset();  // it is of another candidate
  }
  if (is_new) candidates_.push_back(first);
}

// The chain with `op` in it; empty where it has no place.
std::vector<OpId> Moments::with(OpId op) const {
  const OpSet before = ancestors(graph_, op);
  const OpSet after = descendants(graph_, op);
  std::vector<OpId> ops;
  for (const OpId other : ops_) {
    if (before[other]) ops.push_back(other);
  }
  ops.push_back(op);
  for (const OpId other : ops_) {
    if (after[other]) ops.push_back(other);
  }
  if (ops.size() != ops_.size() + 1 || ops.size() > kMostOps) ops.clear();
  return ops;
}

void Moments::try_candidate(Cost below, std::int64_t& effort,
                            const std::function<bool()>& must_stop) {
  const OpId op = candidates_.back();
  std::vector<OpId> ops = with(op);
  if (!trial_ && !ops.empty()) trial_.emplace(graph_, budget_, ops);
  if (trial_ && trial_->size() > kMostSize && !chain_) {
    candidates_.clear();  // the graph is too large for any
    others_.clear();
    trial_.reset();
    return;
  }
  if (trial_ && trial_->size() <= kMostSize) {
    const std::int64_t each = effort_of_step(*trial_);
    effort -= each * trial_->go_on(below, effort / each + 1, true, must_stop);
    proven_ = std::max(proven_, trial_->proven());
    if (!trial_->is_branching()) return;
    if (!chain_ || trial_->by_prices() > (1 + kMore) * chain_->by_prices()) {
      chain_ = std::move(trial_);
      ops_ = std::move(ops);
    } else {
      left_out_.push_back(op);
    }
  }
  trial_.reset();
  candidates_.pop_back();
}

void Moments::make_whole(Cost below, std::int64_t& effort, const std::function<bool()>& must_stop) {
  while (chain_->solved() && !left_out_.empty()) {
    std::vector<OpId> ops = with(left_out_.back());
    left_out_.pop_back();
    if (ops.empty()) continue;
    Chain larger(graph_, budget_, ops);
    if (larger.size() > kMostSize) continue;
    chain_ = std::move(larger);
    ops_ = std::move(ops);
  }
  const std::int64_t each = effort_of_step(*chain_);
  effort -= each * chain_->go_on(below, effort / each + 1, false, must_stop);
  if (chain_->solved() && left_out_.empty()) effort = 0;
  proven_ = std::max(proven_, chain_->proven());
}

void Moments::go_on(const PlanOrder& plan, Cost below, OpId first,
                    const std::function<bool()>& must_stop) {
  if (chain_ && chain_->solved() && candidates_.empty() && others_.empty() && left_out_.empty()) {
    chain_.reset();
    ops_.clear();
    seen_ = {};
  }
  find_candidates(plan, first);
  effort_ = std::clamp(2 * effort_, kFirstEffort, kMostEffort);
  std::int64_t effort = effort_;
  while (effort > 0 && proven_ < below && !must_stop()) {
    if (!candidates_.empty()) {
      try_candidate(below, effort, must_stop);
    } else if (!others_.empty()) {
      const std::size_t some = std::min(others_.size(), kMostOthers);
      left_out_.insert(left_out_.end(), others_.begin(),
                       others_.end() - static_cast<std::ptrdiff_t>(some));
      candidates_.assign(others_.end() - static_cast<std::ptrdiff_t>(some), others_.end());
      others_.clear();
    } else if (chain_) {
      make_whole(below, effort, must_stop);
    } else {
      return;
    }
  }
}

}  // namespace reprise
