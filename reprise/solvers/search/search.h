// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reprise/solvers/candidates.h"
#include "reprise/solvers/plan_order.h"
#include "reprise/solvers/search/walk.h"

namespace reprise {

// Walks from several plans at a time, in rounds, each longer than the one before; the best plans of
// all walks are what the next round starts from, and one that is far cheaper than these, if any is.
// The number of walks does not depend on the number of threads, and neither does what they find.
class Search {
 public:
  // `floor`: no plan has a smaller peak.
  Search(const Problem& problem, const Limits& limits, Bytes floor);

  // A right plan to walk from. A long one is shortened first, until `watch` says stop. One that is
  // far too long is not walked from, unless it is the first: it is slow to shorten and to walk
  // from, and with its small peak it would push all cheaper ones out that have yet to come down to
  // it. Where it is still the best after a round, it is shortened then.
  void add(PlanOrder start, const Stopwatch& watch);

  // One more round, which ends early where `watch` says stop or a walk finds a plan at the cost of
  // `enough`. False where the limits leave no time or moves for another. Some plan was added.
  bool round(const Stopwatch& watch, std::optional<Cost> enough);

  // The best plan of all, whether it fits or not; none before the first was added.
  const std::optional<PlanOrder>& best() const { return best_; }
  bool fits() const { return best_ && problem_.budget.allows(best_->peak); }
  // Another one of the best plans each time, where there are several.
  const PlanOrder& one_of_the_best(int which) const;
  // One that recomputes far less than these, but does not fit, or has a larger peak.
  const std::optional<PlanOrder>& far_cheaper() const { return far_cheaper_; }
  std::int64_t moves() const { return moves_; }         // made so far
  void charge(std::int64_t moves) { moves_ += moves; }  // that were made elsewhere

 private:
  struct Source {
    const PlanOrder* plan;
    std::optional<std::size_t> start;  // its position among the start plans, if it is one
  };

  void note(const PlanOrder& found);
  void walk_from(PlanOrder start);
  PlanOrder made_shorter(const PlanOrder& plan, const Stopwatch& watch) const;
  void shorten_best(const Stopwatch& watch);
  std::vector<Source> sources() const;
  std::int64_t moves_of_each(std::size_t walks, const Stopwatch& watch) const;
  Walk walk_number(std::size_t number, std::int64_t moves, std::optional<Cost> enough) const;
  std::vector<Walked> make(const std::vector<Source>& from, const std::vector<Walk>& walks,
                           const Stopwatch& watch) const;
  void take_in(const std::vector<Source>& from, std::vector<Walked> walked);

  const Problem& problem_;
  const Limits& limits_;
  Bytes floor_;
  Bytes base_peak_;
  std::vector<PlanOrder> starts_;
  std::vector<bool> leads_somewhere_;     // a start: its last walk ended among the best
  std::vector<PlanOrder> pool_;           // the best of all walks, the best one first
  std::optional<PlanOrder> far_cheaper_;  // than these, and the best of such
  std::optional<PlanOrder> best_;
  int rounds_ = 0;
  std::int64_t moves_ = 0;
  double seconds_a_move_ = 0;  // on one thread, in the last round
};

}  // namespace reprise
