// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/proof.h"

#include <algorithm>

#include "reprise/solvers/bounds/moment.h"
#include "reprise/solvers/bounds/whole.h"

namespace reprise {
namespace {

constexpr std::int64_t kFirstNodes = 200;  // of a moment's tree, and four times as many each time …
constexpr std::int64_t kMostNodes = std::int64_t{1} << 50;  // … up to these

// For each op the cost of what the plan runs again after the op's first run, each op once.
IdVector<OpId, Cost> paid_after_first_runs(const Graph& graph, const PlanOrder& plan) {
  constexpr std::size_t kNever = SIZE_MAX;
  IdVector<OpId, std::size_t> first(graph.ops().size(), kNever);
  IdVector<OpId, std::size_t> last(graph.ops().size(), 0);
  for (std::size_t i = 0; i < plan.order.size(); ++i) {
    const OpId op = plan.order[i];
    first[op] = std::min(first[op], i);
    last[op] = i;
  }
  std::vector<Cost> change(plan.order.size());
  for (const OpId op : graph.ops()) {
    change[first[op]] += graph.cost(op);
    change[last[op]] -= graph.cost(op);
  }
  IdVector<OpId, Cost> paid(graph.ops().size());
  Cost now;
  for (std::size_t i = 0; i < plan.order.size(); ++i) {
    now += change[i];
    // The op's own later runs are counted, too, which no bound at its moment does: it is never
    // less.
    if (first[plan.order[i]] == i) paid[plan.order[i]] = now;
  }
  return paid;
}

}  // namespace

Proof::Proof(const Graph& graph, Bytes budget, Techniques in_use)
    : graph_(graph),
      budget_(budget),
      in_use_(in_use),
      together_(graph, budget),
      nodes_(kFirstNodes) {
  if (!in_use.has(Technique::cut_bound)) return;
  for (const OpId op : graph.ops()) moments_.push_back({op, graph.base_cost(), {}, false});
}

void Proof::learn_from(const PlanOrder& plan) {
  const IdVector<OpId, Cost> paid = paid_after_first_runs(graph_, plan);
  for (OfMoment& moment : moments_) moment.most = std::min(moment.most, paid[moment.op]);
}

void Proof::cut(OfMoment& moment) {
  const Bytes alone = bytes_alone(graph_, moment.op);
  MomentCuts cuts(graph_, moment_of(graph_, moment.op));
  moment.cut = Cost{0};
  if (cuts.all() <= budget_ - alone) {
    moment.solved = true;
    return;
  }
  const auto best = cuts.best(budget_ - alone);
  if (!best) {
    const Bytes least = cuts.least();
    peak_ = PeakBound{alone + least, moment.op, least};
    return;
  }
  moment.cut = best->cost;
  moment.most = std::min(moment.most, best->inside.cost);
  moment.solved = !best->split;
  extra_ = std::max(extra_, best->cost);
}

void Proof::make_whole(OfMoment& moment, std::int64_t nodes,
                       const std::function<bool()>& must_stop) {
  MomentCuts cuts(graph_, moment_of(graph_, moment.op));
  const Bytes room = budget_ - bytes_alone(graph_, moment.op);
  const Whole whole = solve_whole(cuts, room, nodes, must_stop);
  moment.solved = whole.solved;
  extra_ = std::max(extra_, whole.cost);
}

void Proof::look_at_each(const std::function<bool()>& must_stop) {
  for (OfMoment& moment : moments_) {
    if (must_stop()) return;
    if (moment.cut && !moment.solved && moment.most > extra_) {
      make_whole(moment, nodes_, must_stop);
    }
  }
  nodes_ = std::min(4 * nodes_, kMostNodes);
}

void Proof::look_at_several(const PlanOrder& known, const PlanOrder& other,
                            const std::function<bool()>& must_stop) {
  if (must_stop()) return;
  together_.go_on(other, known.cost - graph_.base_cost(), moments_.front().op, must_stop);
  extra_ = std::max(extra_, together_.proven());
}

void Proof::go_on(const PlanOrder* known, const PlanOrder* other,
                  const std::function<bool()>& must_stop) {
  if (moments_.empty()) return;
  if (known != nullptr) learn_from(*known);
  std::stable_sort(moments_.begin(), moments_.end(),
                   [](const OfMoment& a, const OfMoment& b) { return a.most > b.most; });
  for (OfMoment& moment : moments_) {
    if (peak_ || must_stop()) return;
    if (!moment.cut && moment.most > extra_) cut(moment);
  }
  std::stable_sort(moments_.begin(), moments_.end(),
                   [](const OfMoment& a, const OfMoment& b) { return a.cut > b.cut; });
  // Whichever comes first may have all the time of a call: they take turns.
  several_first_ = !several_first_;
  const bool several = in_use_.has(Technique::moments) && known != nullptr;
  if (several && several_first_) look_at_several(*known, *other, must_stop);
  if (in_use_.has(Technique::whole)) look_at_each(must_stop);
  if (several && !several_first_) look_at_several(*known, *other, must_stop);
}

}  // namespace reprise
