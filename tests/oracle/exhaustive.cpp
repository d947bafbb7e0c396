// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/exhaustive.h"

#include <algorithm>
#include <queue>
#include <stdexcept>
#include <utility>
#include <vector>

namespace reprise::oracle {
namespace {

using State =
    std::uint32_t;  // one bit a value that is there, above them one bit an op that has run

// The model in bits.
class Machine {
 public:
  explicit Machine(const Graph& graph) : graph_(graph) {
    IdVector<ValueId, State> bits(graph.values().size(), 0);
    for (const ValueId value : graph.values()) {
      if (graph.resident(value)) continue;
      bits[value] = State{1} << values_.size();
      values_.push_back(value);
    }
    if (values_.size() + graph.ops().size() > 24) throw std::logic_error("too large to exhaust");
    for (const ValueId value : values_) {
      if (graph.kept(value)) goal_ |= bits[value];
    }
    for (const OpId op : graph.ops()) {
      OpBits entry;
      for (const ValueId input : graph.inputs(op)) entry.inputs |= bits[input];
      for (const ValueId output : graph.outputs(op)) {
        entry.outputs |= bits[output];
        if (const auto input = graph.overwritten(output)) {
          entry.overwrites.push_back({bits[output], bits[*input], graph.bytes(output)});
        }
      }
      entry.ran = State{1} << (values_.size() + op.index);
      goal_ |= entry.ran;
      ops_.push_back(std::move(entry));
    }
  }

  std::size_t states() const { return std::size_t{1} << (values_.size() + ops_.size()); }
  bool is_goal(State state) const { return (state & goal_) == goal_; }

  // Calls visit(next state, cost, bytes while it happens, steps) for all that can happen in
  // `state`.
  template <class Visit>
  void each_move(State state, Visit visit) const {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const State bit = State{1} << i;
      if ((state & bit) != 0) {
        visit(state & ~bit, Cost{0}, Bytes{0}, std::vector{Step::free(values_[i])});
      }
    }
    const Bytes held = bytes_of(state);
    for (const OpId op : graph_.ops()) {
      const OpBits& bits = ops_[op.index];
      if ((state & bits.inputs) != bits.inputs) continue;
      if ((state & bits.ran) != 0 && !graph_.recomputable(op)) continue;
      // While it runs: all that is there, a buffer for every output, the workspace. Of the inputs
      // that could be overwritten, each is, and is freed at once, or is not.
      const Bytes running = held + bytes_of(bits.outputs) + graph_.workspace(op);
      for (State choice = 0; choice < State{1} << bits.overwrites.size(); ++choice) {
        Bytes saved;
        State gone = 0;
        std::vector<Step> steps{Step::compute(op)};
        bool possible = true;
        for (std::size_t k = 0; k < bits.overwrites.size(); ++k) {
          if ((choice >> k & 1U) == 0) continue;
          const Overwrite& over = bits.overwrites[k];
          possible = possible && (state & over.output) == 0;
          saved += over.bytes;
          gone |= over.input;
          steps.push_back(Step::free(value_of(over.input)));
        }
        if (!possible) continue;
        visit((state | bits.outputs | bits.ran) & ~gone, graph_.cost(op), running - saved, steps);
      }
    }
  }

 private:
  struct Overwrite {
    State output;
    State input;
    Bytes bytes;
  };
  struct OpBits {
    State inputs = 0;
    State outputs = 0;
    State ran = 0;
    std::vector<Overwrite> overwrites;
  };

  Bytes bytes_of(State state) const {
    Bytes sum;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if ((state >> i & 1U) != 0) sum += graph_.bytes(values_[i]);
    }
    return sum;
  }
  ValueId value_of(State bit) const {
    std::size_t i = 0;
    while (bit != State{1} << i) ++i;
    return values_[i];
  }

  const Graph& graph_;
  std::vector<ValueId> values_;  // those that are not resident
  std::vector<OpBits> ops_;
  State goal_ = 0;
};

// Dijkstra's search for the least `length` of a way from nothing to the goal, where
// extend(length, cost, bytes) is the length of a way one move longer, or none.
template <class Length, class Extend>
std::optional<std::pair<Length, Plan>> shortest(const Graph& graph, Extend extend) {
  const Machine machine(graph);
  struct Arrival {
    std::optional<Length> length;
    State from = 0;
    std::vector<Step> steps;
  };
  std::vector<Arrival> arrivals(machine.states());
  std::vector<bool> settled(machine.states(), false);
  using Entry = std::pair<Length, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  arrivals[0].length = Length{};
  queue.emplace(Length{}, 0);
  while (!queue.empty()) {
    const auto [length, state] = queue.top();
    queue.pop();
    if (settled[state]) continue;
    settled[state] = true;
    if (machine.is_goal(state)) {
      Plan plan;
      for (State at = state; at != 0; at = arrivals[at].from) {
        const auto& steps = arrivals[at].steps;
        plan.steps.insert(plan.steps.end(), steps.rbegin(), steps.rend());
      }
      std::reverse(plan.steps.begin(), plan.steps.end());
      return std::pair(length, std::move(plan));
    }
    machine.each_move(state, [&, length = length, state = state](State next, Cost cost, Bytes bytes,
                                                                 const std::vector<Step>& steps) {
      const std::optional<Length> longer = extend(length, cost, bytes);
      if (!longer || settled[next]) return;
      Arrival& arrival = arrivals[next];
      if (arrival.length && *arrival.length <= *longer) return;
      arrival = {longer, state, steps};
      queue.emplace(*longer, next);
    });
  }
  return std::nullopt;
}

}  // namespace

std::optional<Optimum> cheapest_plan(const Graph& graph, Bytes budget) {
  auto found = shortest<Cost>(graph, [&](Cost so_far, Cost cost, Bytes bytes) {
    return bytes <= budget ? std::optional(so_far + cost) : std::nullopt;
  });
  if (!found) return std::nullopt;
  return Optimum{found->first, std::move(found->second)};
}

Bytes smallest_peak(const Graph& graph) {
  return shortest<Bytes>(graph, [](Bytes so_far, Cost,
                                   Bytes bytes) { return std::optional(std::max(so_far, bytes)); })
      ->first;
}

}  // namespace reprise::oracle
