// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/cut_plans.h"

#include <algorithm>
#include <array>
#include <map>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/bounds/moment.h"
#include "reprise/solvers/bounds/smallest_peak.h"

namespace reprise {
namespace {

constexpr std::int64_t kParts = 8;                  // of the room at the worst moment …
constexpr std::array kPartsLeft{8, 7, 6, 5, 4, 2};  // … that are used at it, in turn
constexpr std::array kEvery{1, 2, 4, 8};            // of the parting ops stays
constexpr std::int64_t kSpare = 16;                 // one part of the room, at later moments
constexpr std::int64_t kMostWork = 5'000'000;       // cuts, by the number of ops

// What is kept free for values at some first runs, by their position.
using Rooms = std::map<std::size_t, Bytes>;

// Writes runs in order, and brings back what is missing.
class Writer {
 public:
  Writer(const Graph& graph, std::span<const OpId> first_runs, std::span<const OpId> stay = {})
      : graph_(graph),
        first_runs_(first_runs),
        stay_(stay),
        there_(graph.values().size(), false),
        readers_(graph.values().size(), 0),
        missing_(graph),
        position_(graph.ops().size(), 0) {
    for (const ValueId value : graph.values()) {
      there_[value] = graph.resident(value);
      readers_[value] = graph.consumers(value).size() + (graph.kept(value) ? 1 : 0);
      if (graph.kept(value)) kept_.push_back(value);
    }
    for (std::size_t i = 0; i < first_runs.size(); ++i) position_[first_runs[i]] = i;
  }

  // Lets go at the moments that `rooms` has; and after the last of them wherever more than `budget`
  // would be there, with a little to spare. False where a moment has not enough room, whatever is
  // kept, and where `must_stop`.
  bool write(const Rooms& rooms, std::optional<Bytes> budget,
             const std::function<bool()>& must_stop) {
    auto moment = rooms.begin();
    for (std::size_t i = 0; i < first_runs_.size(); ++i) {
      const OpId op = first_runs_[i];
      bring_back(graph_.inputs(op), i);
      run(op, i);
      for (const ValueId input : graph_.inputs(op)) read(input);
      if (moment != rooms.end()) {
        if (moment->first != i) continue;
        if (must_stop() || !let_go(i, moment->second)) return false;
        ++moment;
      } else if (budget) {
        const Bytes room = *budget - bytes_alone(graph_, op);
        if (held_beside(op) <= room) continue;
        const Bytes most{room.count() / kSpare * (kSpare - 1)};
        if (must_stop() || !let_go(i, most)) return false;
      }
    }
    bring_back(kept_, first_runs_.size() - 1);
    return true;
  }

  // Lets go of everything after each op. False where that takes more than `most_runs`, and where
  // `must_stop`.
  bool write_keeping_nothing(std::size_t most_runs, const std::function<bool()>& must_stop) {
    for (std::size_t i = 0; i < first_runs_.size(); ++i) {
      const std::size_t before = order.size();
      bring_back(graph_.inputs(first_runs_[i]), i);
      run(first_runs_[i], i);
      if (order.size() > most_runs || must_stop()) return false;
      for (std::size_t k = before; k < order.size(); ++k) {
        if (!graph_.recomputable(order[k])) continue;
        for (const ValueId output : graph_.outputs(order[k])) there_[output] = false;
      }
    }
    bring_back(kept_, first_runs_.size() - 1);
    return true;
  }

  std::vector<OpId> order;
  std::vector<std::size_t> serves;  // a run: the position of the first run that it is for

 private:
  bool is_held(ValueId value) const {
    return there_[value] && readers_[value] > 0 && !graph_.resident(value);
  }

  void run(OpId op, std::size_t for_whom) {
    order.push_back(op);
    serves.push_back(for_whom);
    for (const ValueId output : graph_.outputs(op)) {
      if (there_[output]) continue;
      there_[output] = true;
      if (readers_[output] > 0) held_ += graph_.bytes(output);
    }
  }

  void read(ValueId value) {
    if (is_held(value) && readers_[value] == 1) held_ -= graph_.bytes(value);
    --readers_[value];
  }

  // What is there for later, the op's own inputs and outputs aside.
  Bytes held_beside(OpId op) const {
    Bytes held = held_;
    for (const ValueId input : graph_.inputs(op)) {
      if (is_held(input)) held -= graph_.bytes(input);
    }
    for (const ValueId output : graph_.outputs(op)) {
      if (is_held(output)) held -= graph_.bytes(output);
    }
    return held;
  }

  void bring_back(std::span<const ValueId> values, std::size_t for_whom) {
    std::vector<OpId> missing = missing_.of(values, there_);
    std::sort(missing.begin(), missing.end(),
              [&](OpId a, OpId b) { return position_[a] < position_[b]; });
    for (const OpId op : missing) run(op, for_whom);
  }

  // Values of `stay_` are kept where they are still there, if that is possible at all.
  std::optional<MomentCuts::Bound> choose(const Moment& moment, Bytes room) const {
    MomentCuts cuts(graph_, moment);
    std::vector<std::pair<OpId, bool>> fixed;
    for (const OpId op : stay_) {
      const auto outputs = graph_.outputs(op);
      const bool all_there = std::all_of(outputs.begin(), outputs.end(),
                                         [&](ValueId output) { return bool{there_[output]}; });
      if (all_there) fixed.emplace_back(op, false);
    }
    cuts.fix(fixed);
    if (auto bound = cuts.best(room); bound || fixed.empty()) return bound;
    cuts.fix({});
    return cuts.best(room);
  }

  bool let_go(std::size_t position, Bytes room) {
    using When = Moment::When;
    const OpId op = first_runs_[position];
    Moment moment{op, IdVector<OpId, When>(graph_.ops().size(), When::after),
                  ValueSet(graph_.values().size(), false)};
    for (std::size_t i = 0; i < position; ++i) moment.first_run[first_runs_[i]] = When::before;
    for (const ValueId value : graph_.values()) moment.out_of_reach[value] = !there_[value];
    const auto bound = choose(moment, room);
    if (!bound) return false;
    ValueSet stays = bound->inside.kept;
    for (const ValueId input : graph_.inputs(op)) stays[input] = true;
    for (const ValueId output : graph_.outputs(op)) stays[output] = true;
    held_ = Bytes{0};
    for (const ValueId value : graph_.values()) {
      const bool weightless = graph_.resident(value) || graph_.bytes(value) == Bytes{0};
      if (!weightless && !stays[value]) there_[value] = false;
      if (is_held(value)) held_ += graph_.bytes(value);
    }
    return true;
  }

  const Graph& graph_;
  std::span<const OpId> first_runs_;
  std::span<const OpId> stay_;
  std::vector<ValueId> kept_;
  ValueSet there_;
  IdVector<ValueId, std::size_t> readers_;  // that have not run yet, and the caller
  Bytes held_;                              // there, and for somebody
  MissingOps missing_;
  IdVector<OpId, std::size_t> position_;
};

// Tries one plan after the other, until one fits.
class CutPlans {
 public:
  CutPlans(const Graph& graph, std::span<const OpId> first_runs, Bytes budget,
           const std::function<bool()>& must_stop)
      : graph_(graph),
        first_runs_(first_runs),
        budget_(budget),
        must_stop_(must_stop),
        work_left_(kMostWork) {}

  std::vector<PlanOrder> make() {
    worst_ = *attempt({}, {}, {});
    if (plans_.back().peak > budget_ && room_at(worst_) >= Bytes{0}) let_go_in_many_ways();
    sort_best_first(plans_, Budget{budget_});
    return std::move(plans_);
  }

 private:
  using Position = std::size_t;  // of a first run

  // A plan that lets go at each moment what has no room. Returns the first run during which, or for
  // which, its peak comes about; none where a moment has not enough room, whatever is kept, and
  // where it is time to stop.
  std::optional<Position> attempt(std::span<const OpId> stay, const Rooms& rooms,
                                  std::optional<Bytes> budget) {
    Writer writer(graph_, first_runs_, stay);
    const auto must_stop = [&] {
      work_left_ -= static_cast<std::int64_t>(graph_.ops().size());
      return is_over();
    };
    if (!writer.write(rooms, budget, must_stop)) return std::nullopt;
    const Plan plan = with_earliest_frees(graph_, writer.order);
    const Replay replay = simulate(graph_, plan);
    const auto run = std::count_if(
        plan.steps.begin(), plan.steps.begin() + static_cast<std::ptrdiff_t>(*replay.peak_step),
        [](Step step) { return step.kind() == StepKind::compute; });
    plans_.push_back({std::move(writer.order), replay.cost, replay.peak});
    return writer.serves[static_cast<std::size_t>(run)];
  }

  bool is_over() const { return work_left_ < 0 || must_stop_(); }
  bool fits() const { return plans_.back().peak <= budget_; }

  Bytes room_at(Position position) const {
    return budget_ - bytes_alone(graph_, first_runs_[position]);
  }

  void let_go_in_many_ways() {
    const auto parting = articulation_points(graph_, ancestors(graph_, first_runs_[worst_]));
    if (let_go_at_the_worst({}) == kParts) return;
    for (const int every : kEvery) {
      std::vector<OpId> stay;
      const auto step = static_cast<std::size_t>(every);
      for (std::size_t i = step; i <= parting.size(); i += step) stay.push_back(parting[i - 1]);
      if (!stay.empty() && !is_over()) let_go_at_the_worst(stay);
    }
    if (!is_over()) let_go_at_the_worst(parting, budget_);
    let_go_at_each_peak();
  }

  // Leaves some of the room to what runs again, more each time. Returns in how many parts of it a
  // plan fits; 0 where none does.
  std::int64_t let_go_at_the_worst(std::span<const OpId> stay, std::optional<Bytes> budget = {}) {
    for (const std::int64_t parts : kPartsLeft) {
      const Rooms rooms{{worst_, Bytes{room_at(worst_).count() / kParts * parts}}};
      if (!attempt(stay, rooms, budget)) return 0;
      if (fits()) return parts;
    }
    return 0;
  }

  // At one moment after the other, wherever the plan is too large then.
  void let_go_at_each_peak() {
    Rooms rooms{{worst_, room_at(worst_)}};
    while (const auto peak_at = attempt({}, rooms, {})) {
      if (fits()) return;
      const auto [room, fresh] = rooms.emplace(*peak_at, room_at(*peak_at));
      if (!fresh) room->second -= plans_.back().peak - budget_;
      if (room->second < Bytes{0}) return;
    }
  }

  const Graph& graph_;
  std::span<const OpId> first_runs_;
  Bytes budget_;
  const std::function<bool()>& must_stop_;
  std::int64_t work_left_;
  Position worst_ = 0;  // where the plain run takes most
  std::vector<PlanOrder> plans_;
};

}  // namespace

std::vector<PlanOrder> cut_plans(const Graph& graph, std::span<const OpId> first_runs, Bytes budget,
                                 const std::function<bool()>& must_stop) {
  return CutPlans(graph, first_runs, budget, must_stop).make();
}

std::optional<PlanOrder> keep_nothing(const Graph& graph, std::span<const OpId> first_runs,
                                      std::size_t most_runs,
                                      const std::function<bool()>& must_stop) {
  Writer writer(graph, first_runs);
  if (!writer.write_keeping_nothing(most_runs, must_stop)) return std::nullopt;
  return plan_order(graph, std::move(writer.order));
}

}  // namespace reprise
