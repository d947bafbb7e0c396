// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/revolve.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "reprise/core/lifetimes.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/segments.h"

namespace reprise {
namespace {

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

// C(a + b, b), or kPlenty where it is more.
std::int64_t binomial(std::int64_t a, std::int64_t b) {
  if (a < b) std::swap(a, b);
  std::int64_t product = 1;
  for (std::int64_t i = 1; i <= b; ++i) {
    if (product > kPlenty / (a + i)) return kPlenty;
    product = product * (a + i) / i;
  }
  return product;
}

// The least number of times r that steps may run for them to be reversed: steps ≤ C(s + r, r).
std::int64_t repetitions(std::int64_t steps, std::int64_t snapshots) {
  std::int64_t times = 0;
  while (binomial(snapshots, times) < steps) ++times;
  return times;
}

// How many steps to advance from a snapshot before the next one is taken, so that the fewest
// evaluations are needed; of several answers the largest. steps > 1, snapshots > 1 (the one
// advanced from included).
//
// With r repetitions for the whole, the first part may take r - 1 of them with all snapshots, and
// the rest r with one snapshot fewer: any advance a with a ≤ C(s + r - 1, r - 1) and steps - a
// between C(s + r - 2, r - 1) and C(s + r - 1, r) is best.
std::int64_t next_snapshot(std::int64_t steps, std::int64_t snapshots) {
  const std::int64_t times = repetitions(steps, snapshots);
  return std::min(binomial(snapshots, times - 1), steps - binomial(snapshots - 1, times - 1));
}

// The forward graph as a chain. Stretch k ends with cut point k; one more follows the last.
struct Chain {
  explicit Chain(const Graph& graph)
      : cuts(articulation_points(graph, forward_of_loss(graph))),
        stretch(graph.ops().size(), 0),
        members(cuts.size() + 1) {
    std::uint32_t index = 0;
    for (const OpId op : graph.ops()) {
      stretch[op] = index;
      if (graph.phase(op) != Phase::forward) continue;
      members[index].push_back(op);
      if (index < cuts.size() && op == cuts[index]) ++index;
    }
  }

  std::vector<OpId> cuts;
  IdVector<OpId, std::uint32_t> stretch;
  std::vector<std::vector<OpId>> members;  // forward ops, in program order
};

// Writes the order of ops for one number of snapshots; the frees are worked out from it.
class Writer {
 public:
  Writer(const Graph& graph, const Chain& chain, std::size_t snapshots)
      : graph_(graph),
        chain_(chain),
        snapshots_(snapshots),
        there_(graph.values().size(), false),
        missing_(graph) {
    for (const ValueId value : graph.values()) there_[value] = graph.resident(value);
  }

  // False where `keep_going`, called with the number of computes so far, says so.
  template <class KeepGoing>
  bool write(KeepGoing keep_going) {
    bool past_the_loss = false;
    for (const OpId op : graph_.ops()) {
      if (graph_.phase(op) == Phase::backward && !past_the_loss) {
        past_the_loss = true;
        keep_first_snapshots();
      }
      next_ = op;
      while (const auto missing = last_stretch_missing(op)) bring_back(*missing);
      run(op);
      if (!keep_going(order_.size())) return false;
    }
    return true;
  }

  Plan plan() const { return with_earliest_frees(graph_, order_); }

 private:
  void run(OpId op) {
    order_.push_back(op);
    for (const ValueId output : graph_.outputs(op)) there_[output] = true;
  }

  // Values that can't or need not come back stay.
  bool stays(ValueId value) const {
    const auto producer = graph_.producer(value);
    return !producer || graph_.phase(*producer) != Phase::forward ||
           !graph_.recomputable(*producer) || graph_.bytes(value) == Bytes{0};
  }

  // Where the first forward pass takes snapshots. Its last stretch is there as well.
  void keep_first_snapshots() {
    ValueSet kept(graph_.values().size(), false);
    std::size_t last = chain_.cuts.size();
    while (last > 0 && chain_.members[last].empty()) --last;
    for (const OpId op : chain_.members[last]) {
      for (const ValueId output : graph_.outputs(op)) kept[output] = true;
    }
    while (const auto next = next_state(last)) {
      held_.push_back(*next);
      for (const ValueId output : graph_.outputs(chain_.cuts[*next - 1])) kept[output] = true;
    }
    for (const ValueId value : graph_.values()) {
      there_[value] = there_[value] && (kept[value] || stays(value));
    }
  }

  // States are numbered from 0, where the chain begins; state k is cut point k - 1. On the way from
  // the last state held to stretch `target`: the state to hold next, if there is room for one.
  std::optional<std::size_t> next_state(std::size_t target) const {
    const std::size_t from = held_.empty() ? 0 : held_.back();
    const auto steps = static_cast<std::int64_t>(target + 2 - from);  // one more: its reversal
    if (held_.size() >= snapshots_ || steps < 3) return std::nullopt;
    const auto room = static_cast<std::int64_t>(snapshots_ - held_.size());
    const std::size_t next = from + static_cast<std::size_t>(next_snapshot(steps, room + 1));
    return next > target ? std::nullopt : std::optional(next);
  }

  std::optional<std::size_t> last_stretch_missing(OpId op) const {
    std::optional<std::size_t> last;
    for (const ValueId input : graph_.inputs(op)) {
      if (there_[input]) continue;
      const std::size_t stretch = chain_.stretch[*graph_.producer(input)];
      if (!last || stretch > *last) last = stretch;
    }
    return last;
  }

  // Runs the chain from the nearest state that is there to `target`, and brings back all of that
  // stretch that is still going to be read.
  void bring_back(std::size_t target) {
    while (!held_.empty() && held_.back() > target) held_.pop_back();
    while (const auto next = next_state(target)) {
      held_.push_back(*next);
      const auto outputs = graph_.outputs(chain_.cuts[*next - 1]);
      make({outputs.begin(), outputs.end()});
    }
    std::vector<ValueId> read;
    for (const OpId op : chain_.members[target]) {
      if (op >= next_) break;  // its first run is still to come
      for (const ValueId output : graph_.outputs(op)) {
        const auto readers = graph_.consumers(output);
        if (!readers.empty() && readers.back() >= next_) read.push_back(output);
      }
    }
    make(read);
  }

  // Computes what is missing of `values`, and whatever that needs. Only `values` are there after.
  void make(const std::vector<ValueId>& values) {
    std::vector<ValueId> passing;
    for (const OpId op : missing_.of(values, there_)) {
      for (const ValueId output : graph_.outputs(op)) {
        if (!there_[output] && !stays(output)) passing.push_back(output);
      }
      run(op);
    }
    for (const ValueId value : passing) there_[value] = false;
    for (const ValueId value : values) there_[value] = true;
  }

  const Graph& graph_;
  const Chain& chain_;
  std::size_t snapshots_;
  std::vector<std::size_t> held_;  // states before the stretch that was last asked for, ascending
  ValueSet there_;                 // what a next reader can count on
  MissingOps missing_;
  OpId next_{};  // the op of the program that is next
  std::vector<OpId> order_;
};

}  // namespace

std::int64_t binomial_evaluations(std::int64_t steps, std::int64_t snapshots) {
  const std::int64_t times = repetitions(steps, snapshots);
  return times == 0 ? 0 : times * steps - binomial(snapshots + 1, times - 1);
}

Plan revolve_plan(const Graph& graph, std::size_t snapshots) {
  const Chain chain(graph);
  Writer writer(graph, chain, snapshots);
  writer.write([](std::size_t) { return true; });
  return writer.plan();
}

Findings revolve(const Problem& problem, const Limits& limits) {
  constexpr std::int64_t kBytesPerCompute = 64;  // in the order, and in the plan with its frees
  constexpr std::size_t kEach = 32;
  const auto most = static_cast<std::size_t>(limits.memory.count() / kBytesPerCompute);
  const Graph& graph = problem.graph;
  const Stopwatch watch(limits);
  const Chain chain(graph);
  Candidates candidates(problem);
  // Offers the plan for a number of snapshots; does it fit?
  const auto offer = [&](std::size_t snapshots) {
    watch.report(fmt::format("{} of {} snapshots", snapshots, chain.cuts.size()));
    Writer writer(graph, chain, snapshots);
    if (!writer.write([&](std::size_t n) { return n <= most && !watch.must_stop(); })) {
      candidates.gave_up(watch);
      return true;  // more snapshots make shorter plans
    }
    const std::optional<Bytes> peak = candidates.offer(writer.plan());
    return !peak || problem.budget.allows(*peak);
  };

  if (!problem.budget.bytes) {
    for (std::size_t snapshots = chain.cuts.size(); !watch.must_stop();) {
      offer(snapshots);
      if (snapshots == 0) break;
      snapshots = snapshots <= kEach ? snapshots - 1 : std::max(snapshots / 2, kEach);
    }
    if (watch.must_stop()) candidates.stopped();
    return std::move(candidates).best();
  }
  // `misses` snapshots and more do not fit; fewer than `fits` do, as far as is known.
  std::size_t fits = 0;
  std::size_t misses = chain.cuts.size() + 1;
  while (fits < misses) {
    if (watch.must_stop()) {
      candidates.stopped();
      break;
    }
    const std::size_t snapshots = fits + (misses - fits) / 2;
    if (offer(snapshots)) {
      fits = snapshots + 1;
    } else {
      misses = snapshots;
    }
  }
  return std::move(candidates).best();
}

std::string revolve_supports(const Graph& graph) {
  const OpSet forward = forward_of_loss(graph);
  const std::vector<OpId> ops = in_program_order(forward);
  if (ops.empty()) return "needs a chain: no forward op leads to the loss";
  if (ops.size() == 1 || articulation_points(graph, forward).size() > 1) return "";
  for (const OpId op : ops) {
    std::size_t inputs = 0;
    for (const ValueId input : graph.inputs(op)) {
      const auto producer = graph.producer(input);
      if (producer && forward[*producer]) ++inputs;
    }
    if (inputs < 2) continue;
    return fmt::format("needs a chain: {} has {} inputs, and no op parts the forward graph",
                       in_quotes(graph.name(op)), inputs);
  }
  return fmt::format("needs a chain: no op parts the forward graph after {}",
                     in_quotes(graph.name(ops.front())));
}

}  // namespace reprise
