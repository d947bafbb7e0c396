// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/evicting_plans.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "reprise/core/simulator.h"
#include "reprise/core/topology.h"

namespace reprise {
namespace {

constexpr std::int64_t kParts = 16'384;  // of the plain peak: rooms no further apart are alike
constexpr int kDeepest = 200;            // of what is made again for what is made again
constexpr int kMostTries = 2;            // to have all at once that an op reads

// Ops whose values are gone, in groups that hang together: to have one of them back, much of its
// group has to run. A group only grows; an op that is back leaves its cost out of the sum.
class GoneGroups {
 public:
  explicit GoneGroups(const Graph& graph) : graph_(graph), node_(graph.ops().size(), kNone) {}

  bool is_gone(OpId op) const { return node_[op] != kNone; }

  void add(OpId op) {
    node_[op] = static_cast<std::uint32_t>(parent_.size());
    parent_.push_back(node_[op]);
    cost_.push_back(cost_of(op));
    const std::uint32_t own = node_[op];
    for_each_gone_neighbour(op, [&](std::uint32_t group) {
      if (group == own) return;
      parent_[group] = own;
      cost_[own] += cost_[group];
    });
  }

  void take_out(OpId op) {
    cost_[root(node_[op])] -= cost_of(op);
    node_[op] = kNone;
  }

  // Of running `op` again, with all of the groups beside it.
  double cost_without(OpId op) {
    double cost = cost_of(op);
    seen_.clear();
    for_each_gone_neighbour(op, [&](std::uint32_t group) {
      if (std::find(seen_.begin(), seen_.end(), group) != seen_.end()) return;
      seen_.push_back(group);
      cost += cost_[group];
    });
    return cost;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  double cost_of(OpId op) const { return static_cast<double>(graph_.cost(op).count()); }

  std::uint32_t root(std::uint32_t node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }

  template <class Visit>
  void for_each_gone_neighbour(OpId op, const Visit& visit) {
    for (const ValueId input : graph_.inputs(op)) {
      const auto producer = graph_.producer(input);
      if (producer && is_gone(*producer)) visit(root(node_[*producer]));
    }
    for (const ValueId output : graph_.outputs(op)) {
      for (const OpId reader : graph_.consumers(output)) {
        if (is_gone(reader)) visit(root(node_[reader]));
      }
    }
  }

  const Graph& graph_;
  IdVector<OpId, std::uint32_t> node_;
  std::vector<std::uint32_t> parent_;
  std::vector<double> cost_;  // of a group, at its root
  std::vector<std::uint32_t> seen_;
};

class Evictions {
 public:
  Evictions(const Graph& graph, std::span<const OpId> first_runs, Bytes room,
            const std::function<bool()>& must_stop)
      : graph_(graph),
        first_runs_(first_runs),
        room_(room),
        most_runs_(most_runs(graph)),
        must_stop_(must_stop),
        position_(graph.ops().size(), 0),
        reads_(graph.values().size()),
        useful_until_(graph.values().size(), 0),
        there_(graph.values().size(), false),
        pinned_(graph.values().size(), false),
        wanted_(graph.values().size(), 0),
        missing_(graph),
        gone_(graph) {
    for (std::size_t i = 0; i < first_runs.size(); ++i) position_[first_runs[i]] = i;
    for (const ValueId value : graph.values()) there_[value] = graph.resident(value);
    find_reads();
  }

  bool write() {
    while (now_ < first_runs_.size()) {
      if (!run(first_runs_[now_], 0)) return false;
    }
    return true;
  }

  std::vector<OpId> order;

 private:
  using Position = std::size_t;  // of a first run

  // Gradients stay: to make one again takes all of the backward pass before it.
  bool may_run_again(OpId op) const {
    const bool is_backward = graph_.has_phases() && graph_.phase(op) == Phase::backward;
    return graph_.recomputable(op) && !is_backward;
  }

  // From the last op on, so that readers come before what they read.
  void find_reads() {
    for (std::size_t i = first_runs_.size(); i-- > 0;) {
      const OpId op = first_runs_[i];
      Position until = i;
      if (may_run_again(op)) {
        for (const ValueId output : graph_.outputs(op)) {
          until = std::max(until, useful_until_[output]);
        }
      }
      for (const ValueId input : graph_.inputs(op)) {
        reads_[input].push_back(i);
        useful_until_[input] = std::max(useful_until_[input], until);
      }
    }
  }

  // The first op from now on that reads it, or kNever.
  Position next_read(ValueId value) {
    std::vector<Position>& reads = reads_[value];
    while (!reads.empty() && reads.back() < now_) reads.pop_back();
    return reads.empty() ? kNever : reads.back();
  }

  bool run(OpId op, int depth) {
    if (order.size() >= most_runs_ || depth > kDeepest || must_stop_()) return false;
    const auto inputs = graph_.inputs(op);
    if (!bring_together(inputs, depth)) return false;
    for (const ValueId input : inputs) pinned_[input] = true;
    if (!make_room(op)) return false;
    order.push_back(op);
    for (const ValueId input : inputs) pinned_[input] = false;
    for (const ValueId output : graph_.outputs(op)) put(output);
    if (depth == 0) ++now_;
    for (const ValueId input : inputs) drop_if_useless(input);
    for (const ValueId output : graph_.outputs(op)) drop_if_useless(output);
    return true;
  }

  // While one value is brought back, another may have to go; it is brought back beside the first.
  bool bring_together(std::span<const ValueId> values, int depth) {
    for (const ValueId value : values) ++wanted_[value];
    for (int tries = 0; !are_there(values); ++tries) {
      if (tries == kMostTries || !bring_back(values, depth)) return false;
    }
    for (const ValueId value : values) --wanted_[value];
    return true;
  }

  // What is brought back for a later one of the missing ops may have to go before it runs; it is
  // brought back once more then.
  bool bring_back(std::span<const ValueId> values, int depth) {
    const std::vector<OpId> missing = in_order(missing_.of(values, there_));
    for (const OpId op : missing) {
      if (!graph_.recomputable(op)) return false;
      for (const ValueId input : graph_.inputs(op)) ++wanted_[input];
    }
    for (const OpId op : missing) {
      if (!are_there(graph_.outputs(op)) && !run(op, depth + 1)) return false;
      for (const ValueId input : graph_.inputs(op)) {
        --wanted_[input];
        drop_if_useless(input);
      }
    }
    return true;
  }

  std::vector<OpId> in_order(std::vector<OpId> ops) const {
    std::sort(ops.begin(), ops.end(), [&](OpId a, OpId b) { return position_[a] < position_[b]; });
    return ops;
  }

  bool are_there(std::span<const ValueId> values) const {
    return std::all_of(values.begin(), values.end(), [&](ValueId v) { return bool{there_[v]}; });
  }

  void put(ValueId value) {
    if (there_[value]) return;
    there_[value] = true;
    in_use_ += graph_.bytes(value);
    if (graph_.bytes(value) == Bytes{0}) return;
    alive_.push_back(value);
    const OpId op = *graph_.producer(value);
    if (value == largest_output(op) && gone_.is_gone(op)) gone_.take_out(op);
  }

  void take(ValueId value) {
    there_[value] = false;
    in_use_ -= graph_.bytes(value);
    alive_.erase(std::find(alive_.begin(), alive_.end(), value));
    const OpId op = *graph_.producer(value);
    if (value == largest_output(op) && useful_until_[value] > now_) gone_.add(op);
  }

  ValueId largest_output(OpId op) const {
    const auto outputs = graph_.outputs(op);
    return *std::max_element(outputs.begin(), outputs.end(), [&](ValueId a, ValueId b) {
      return graph_.bytes(a) < graph_.bytes(b);
    });
  }

  bool can_go(ValueId value) const {
    const OpId op = *graph_.producer(value);
    return !pinned_[value] && !graph_.kept(value) && may_run_again(op);
  }

  void drop_if_useless(ValueId value) {
    if (!there_[value] || graph_.resident(value) || graph_.bytes(value) == Bytes{0}) return;
    if (graph_.kept(value) || wanted_[value] > 0) return;
    // What can't run again stays while it helps to make anything.
    const bool again = graph_.recomputable(*graph_.producer(value));
    if (again ? next_read(value) == kNever : useful_until_[value] < now_) take(value);
  }

  // Outputs that are there get a second buffer.
  Bytes bytes_of_run(OpId op) {
    Bytes bytes = graph_.workspace(op);
    for (const ValueId output : graph_.outputs(op)) {
      const auto input = graph_.overwritten(output);
      const bool in_place = input && !there_[output] && is_last_read(*input);
      if (!in_place) bytes += graph_.bytes(output);
    }
    return bytes;
  }

  bool is_last_read(ValueId value) {
    if (graph_.kept(value) || wanted_[value] > 1) return false;
    const Position next = next_read(value);
    return next == kNever || (next == now_ && reads_[value].size() == 1);
  }

  bool make_room(OpId op) {
    const Bytes bytes = bytes_of_run(op);
    while (in_use_ + bytes > room_) {
      const auto value = cheapest_to_lose();
      if (!value) return false;
      take(*value);
    }
    return true;
  }

  // Of those that nothing under way waits for, if there are any.
  std::optional<ValueId> cheapest_to_lose() {
    std::optional<ValueId> best;
    double best_loss = std::numeric_limits<double>::infinity();
    bool best_is_wanted = true;
    for (const ValueId value : alive_) {
      const bool is_wanted = wanted_[value] > 0;
      if (!can_go(value) || (is_wanted && !best_is_wanted)) continue;
      const double loss = loss_a_byte(value);
      if (is_wanted == best_is_wanted && loss >= best_loss) continue;
      best = value;
      best_loss = loss;
      best_is_wanted = is_wanted;
    }
    return best;
  }

  double loss_a_byte(ValueId value) {
    const Position next = std::min(next_read(value), first_runs_.size());
    const auto wait = static_cast<double>(std::max<Position>(next - now_, 1));
    const auto bytes = static_cast<double>(graph_.bytes(value).count());
    return gone_.cost_without(*graph_.producer(value)) / bytes / wait;
  }

  static constexpr Position kNever = std::numeric_limits<Position>::max();

  const Graph& graph_;
  std::span<const OpId> first_runs_;
  Bytes room_;
  std::size_t most_runs_;
  const std::function<bool()>& must_stop_;
  IdVector<OpId, Position> position_;
  IdVector<ValueId, std::vector<Position>> reads_;  // still to come, the next one last
  IdVector<ValueId, Position> useful_until_;  // its last read, or that of what it helps to make
  ValueSet there_;
  ValueSet pinned_;                // the op that runs now reads it
  IdVector<ValueId, int> wanted_;  // ops under way, or to run again soon, that read it
  std::vector<ValueId> alive_;     // there, and of some bytes
  Bytes in_use_;
  Position now_ = 0;
  MissingOps missing_;
  GoneGroups gone_;
};

}  // namespace

std::optional<PlanOrder> evicting_plan(const Graph& graph, std::span<const OpId> first_runs,
                                       Bytes room, const std::function<bool()>& must_stop) {
  Evictions evictions(graph, first_runs, room, must_stop);
  if (!evictions.write()) return std::nullopt;
  return plan_order(graph, std::move(evictions.order));
}

std::vector<PlanOrder> evicting_plans(const Graph& graph, std::span<const OpId> first_runs,
                                      Bytes budget, const std::function<bool()>& must_stop) {
  std::vector<PlanOrder> plans;
  const auto fits = [&](Bytes room) {
    auto plan = evicting_plan(graph, first_runs, room, must_stop);
    if (!plan) return false;
    plans.push_back(*std::move(plan));
    return true;
  };
  const Bytes plain = base_peak(graph);
  if (plain <= budget || fits(budget)) return plans;
  const Bytes near{std::max<std::int64_t>(1, plain.count() / kParts)};
  Bytes low = budget;  // no plan
  for (Bytes high = plain; high - low > near && !must_stop();) {
    const Bytes middle{low.count() + (high - low).count() / 2};
    (fits(middle) ? high : low) = middle;
  }
  sort_best_first(plans, Budget{budget});
  return plans;
}

}  // namespace reprise
