// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "reprise/core/simulator.h"
#include "reprise/solvers/dice.h"
#include "reprise/solvers/in_parallel.h"
#include "reprise/solvers/search/sequence.h"
#include "reprise/solvers/search/shorten.h"

namespace reprise {
namespace {

constexpr std::size_t kWalks = 8;  // a round, or more where there are more start plans
constexpr std::size_t kPool = 4;   // plans that go on
constexpr std::size_t kLong = 3;   // runs an op, to be shortened
constexpr std::size_t kMuchTooLong = 1'000'000;  // runs in all, not to be
constexpr int kTryAgain = 4;             // rounds, until a start that led nowhere is tried again
constexpr double kFirstMoves = 20'000;   // of a walk in the first round, …
constexpr double kFirstWork = 4e7;       // … fewer where these times the ops are more, …
constexpr double kFewestMoves = 500;     // … though not below these …
constexpr double kGrowth = 3;            // … and how many times as many in the next …
constexpr double kLongestRound = 0.2;    // … but a round takes no more of the time limit, …
constexpr double kTooLongRound = 0.4;    // … and ends at this where moves take longer than before
constexpr std::int64_t kFarCheaper = 2;  // times less for what runs again
constexpr std::array kHot{0.01, 0.03, 0.1, 0.3, 1.0};  // times the cost of an average op …
constexpr double kCold = 0.002;                        // … likewise, at the end of a walk …
constexpr double kWarmer = 30;  // … and this over the root of the number of ops, in small graphs
constexpr std::array kPrices{0.1, 0.3, 1.0};  // of all bytes of the plain peak, in plain costs
constexpr double kPriceOfPeak = 100;          // … where the peak is all that counts

}  // namespace

Search::Search(const Problem& problem, const Limits& limits, Bytes floor)
    : problem_(problem), limits_(limits), floor_(floor), base_peak_(base_peak(problem.graph)) {}

void Search::note(const PlanOrder& found) {
  if (!best_ || better(found, *best_, problem_.budget)) best_ = found;
  if (limits_.found && fits()) limits_.found(best_->cost);
}

void Search::add(PlanOrder start, const Stopwatch& watch) {
  note(start);
  if (!starts_.empty() && start.order.size() > most_runs(problem_.graph)) return;
  if (start.order.size() > kLong * problem_.graph.ops().size()) {
    start = made_shorter(start, watch);
    note(start);
  }
  walk_from(std::move(start));
}

void Search::walk_from(PlanOrder start) {
  starts_.push_back(std::move(start));
  leads_somewhere_.push_back(true);
}

PlanOrder Search::made_shorter(const PlanOrder& plan, const Stopwatch& watch) const {
  const Bytes room = problem_.budget.bytes.value_or(floor_);
  return shortened(problem_.graph, plan, room, [&] { return watch.must_stop(); });
}

// Once cheaper plans had a round to come up to it. Runs that are left out make it cheaper, not
// smaller.
void Search::shorten_best(const Stopwatch& watch) {
  const std::size_t runs = best_->order.size();
  const bool in_vain = !problem_.budget.bytes || runs > kMuchTooLong;
  if (rounds_ != 1 || in_vain || runs <= most_runs(problem_.graph)) return;
  PlanOrder shorter = made_shorter(*best_, watch);
  note(shorter);
  if (shorter.order.size() <= most_runs(problem_.graph)) walk_from(std::move(shorter));
}

const PlanOrder& Search::one_of_the_best(int which) const {
  return pool_.empty() ? *best_ : pool_[static_cast<std::size_t>(which) % pool_.size()];
}

// Start plans that led somewhere, now and then the others, too; the best plans so far, and one that
// is far cheaper.
std::vector<Search::Source> Search::sources() const {
  std::vector<Source> from;
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    if (leads_somewhere_[i] || rounds_ % kTryAgain == 0) from.push_back({&starts_[i], i});
  }
  const bool go_on = !pool_.empty() && limits_.techniques.has(Technique::restarts);
  if (go_on && far_cheaper_) from.push_back({&*far_cheaper_, std::nullopt});
  const std::vector<PlanOrder>& best = go_on ? pool_ : starts_;
  for (std::size_t i = 0; from.size() < kWalks || i < pool_.size(); ++i) {
    from.push_back({&best[i % best.size()], std::nullopt});
  }
  return from;
}

std::int64_t Search::moves_of_each(std::size_t walks, const Stopwatch& watch) const {
  const auto count = static_cast<double>(walks);
  const double by_work = kFirstWork / static_cast<double>(problem_.graph.ops().size());
  double moves = std::clamp(by_work, kFewestMoves, kFirstMoves) * std::pow(kGrowth, rounds_);
  if (limits_.iterations) {
    const auto left = static_cast<double>(*limits_.iterations - moves_);
    moves = std::min(moves, std::ceil(left / count));
  }
  if (limits_.time && rounds_ > 0) {
    const double seconds = std::min(watch.left()->count(), kLongestRound * limits_.time->count());
    const double threads = std::min<double>(limits_.threads, count);
    moves = std::min(moves, std::ceil(seconds * threads / seconds_a_move_ / count));
  }
  return std::max<std::int64_t>(static_cast<std::int64_t>(moves), 1);
}

// How warm it is and what bytes cost is drawn for each walk.
Walk Search::walk_number(std::size_t number, std::int64_t moves, std::optional<Cost> enough) const {
  Dice of_seed(limits_.seed);
  Dice of_round(of_seed.roll() + static_cast<std::uint64_t>(rounds_));
  Dice dice(of_round.roll() + number);
  const Graph& graph = problem_.graph;
  const auto ops = static_cast<double>(graph.ops().size());
  const double base_cost = std::max(1.0, static_cast<double>(graph.base_cost().count()));
  const double plain_peak = std::max(1.0, static_cast<double>(base_peak_.count()));
  const double warmth = std::max(1.0, base_cost / ops) * std::max(1.0, kWarmer / std::sqrt(ops));
  const double price = problem_.budget.bytes ? kPrices[dice.below(kPrices.size())] : kPriceOfPeak;
  Walk walk;
  walk.room = problem_.budget.bytes.value_or(floor_);
  walk.byte_price = price * base_cost / plain_peak;
  walk.hot = warmth * kHot[dice.below(kHot.size())];
  walk.cold = warmth * kCold;
  walk.moves = moves;
  walk.seed = dice.roll();
  walk.in_use = limits_.techniques;
  walk.enough = enough;
  walk.found = limits_.found;
  return walk;
}

std::vector<Walked> Search::make(const std::vector<Source>& from, const std::vector<Walk>& walks,
                                 const Stopwatch& watch) const {
  std::vector<Walked> walked(walks.size());
  const double end = limits_.time ? watch.seconds() + kTooLongRound * limits_.time->count()
                                  : std::numeric_limits<double>::infinity();
  const auto must_stop = [&] { return watch.must_stop() || watch.seconds() > end; };
  in_parallel(walks.size(), limits_.threads, [&](std::size_t i) {
    walked[i] = walk(problem_.graph, problem_.budget, *from[i].plan, walks[i], must_stop);
    walked[i].best = shortened(problem_.graph, walked[i].best, walks[i].room, must_stop);
  });
  return walked;
}

// Keeps the best plans, those with the same cost and peak once; and of those that are far cheaper,
// though they have yet to come down to these, the best.
void Search::take_in(const std::vector<Source>& from, std::vector<Walked> walked) {
  const auto comes_first = [&](const PlanOrder& a, const PlanOrder& b) {
    return better(a, b, problem_.budget);
  };
  std::vector<PlanOrder> found = std::move(pool_);
  if (far_cheaper_) found.push_back(*std::move(far_cheaper_));
  for (const Walked& one : walked) found.push_back(one.best);
  sort_best_first(found, problem_.budget);
  pool_.clear();
  far_cheaper_.reset();
  Cost least{Sequence::kMostCost};  // of what runs again
  for (PlanOrder& plan : found) {
    if (!pool_.empty() && !comes_first(pool_.back(), plan)) continue;
    const Cost again = plan.cost - problem_.graph.base_cost();
    if (pool_.size() < kPool) {
      least = std::min(least, again);
      pool_.push_back(std::move(plan));
    } else if (again.count() <= least.count() / kFarCheaper) {
      far_cheaper_ = std::move(plan);
      break;
    }
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!from[i].start) continue;
    leads_somewhere_[*from[i].start] = !comes_first(pool_.back(), walked[i].best);
  }
  note(pool_.front());
}

bool Search::round(const Stopwatch& watch, std::optional<Cost> enough) {
  shorten_best(watch);
  const std::vector<Source> from = sources();
  const std::int64_t moves = moves_of_each(from.size(), watch);
  std::vector<Walk> walks;
  for (std::size_t i = 0; i < from.size(); ++i) walks.push_back(walk_number(i, moves, enough));

  const double begun = watch.seconds();
  std::vector<Walked> walked = make(from, walks, watch);
  std::int64_t made = 0;
  for (const Walked& one : walked) made += one.moves;
  const double threads = std::min<double>(limits_.threads, static_cast<double>(walks.size()));
  seconds_a_move_ = (watch.seconds() - begun) * threads / static_cast<double>(made + 1);
  moves_ += made;
  take_in(from, std::move(walked));
  ++rounds_;
  return !watch.must_stop() && (!limits_.iterations || moves_ < *limits_.iterations);
}

}  // namespace reprise
