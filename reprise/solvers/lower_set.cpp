// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/lower_set.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "reprise/solvers/lower_sets/program.h"
#include "reprise/solvers/segments.h"

namespace reprise {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr std::size_t kMostSets = std::size_t{1} << 14;  // the program over them takes seconds

// The forward ops that loss or backward ops depend on, as nodes in program order.
struct Nodes {
  explicit Nodes(const Graph& graph) : of_op(graph.ops().size(), kNone) {
    for (const OpId op : in_program_order(forward_of_the_rest(graph))) add(graph, op);
  }

  LowerSetGraph forward;
  IdVector<OpId, std::uint32_t> of_op;

 private:
  void add(const Graph& graph, OpId op) {
    LowerSetGraph::Node node{graph.cost(op), Bytes{0}, {}};
    for (const ValueId output : graph.outputs(op)) node.bytes += graph.bytes(output);
    for (const ValueId input : graph.inputs(op)) {
      const auto producer = graph.producer(input);
      if (!producer || of_op[*producer] == kNone) continue;
      const std::uint32_t read = of_op[*producer];
      if (std::find(node.reads.begin(), node.reads.end(), read) == node.reads.end()) {
        node.reads.push_back(read);
      }
    }
    of_op[op] = static_cast<std::uint32_t>(forward.nodes.size());
    forward.nodes.push_back(std::move(node));
  }
};

// Tries sequences of lower sets as plans.
class Search {
 public:
  Search(const Problem& problem, const Limits& limits)
      : problem_(problem), watch_(limits), nodes_(problem.graph), candidates_(problem) {
    room_.sets = kMostSets;
    room_.memory = limits.memory;
    room_.keep_going = [this] { return !watch_.must_stop(); };
  }

  Findings run(bool exact) {
    const LowerSetSequence one_segment{
        std::vector<std::uint32_t>(nodes_.forward.nodes.size(), 0), 1, {}, {}, {}};
    fits(one_segment);
    try {
      search(LowerSets::of_ancestors(nodes_.forward, room_));
      if (exact) search(LowerSets::all(nodes_.forward, room_));
    } catch (const OverflowError&) {  // the formula takes sums that the graph does not
      candidates_.stopped();
    }
    return std::move(candidates_).best();
  }

 private:
  void search(const std::optional<LowerSets>& family);
  bool try_fewest_bytes(const LowerSetProgram& program, Bytes budget);          // false: no room
  std::optional<bool> try_front(const LowerSetProgram& program, Bytes budget);  // did any fit?
  bool fits(const LowerSetSequence& sequence);
  KeptValues decision_of(const LowerSetSequence& sequence) const;

  const Problem& problem_;
  Stopwatch watch_;
  Nodes nodes_;
  Candidates candidates_;
  LowerSets::Room room_;
  std::optional<Bytes> possible_;  // a budget that the formula can meet
};

// Keeps what a later segment reads. The last segment is kept as a whole: its backward pass comes
// right after it.
KeptValues Search::decision_of(const LowerSetSequence& sequence) const {
  const Graph& graph = problem_.graph;
  KeptValues decision{ValueSet(graph.values().size(), false),
                      IdVector<OpId, std::uint32_t>(graph.ops().size(), sequence.count)};
  for (const OpId op : graph.ops()) {
    if (nodes_.of_op[op] == kNone) continue;
    const std::uint32_t segment = sequence.segments[nodes_.of_op[op]];
    decision.segments[op] = segment;
    for (const ValueId output : graph.outputs(op)) {
      decision.kept[output] = segment + 1 == sequence.count;
    }
    for (const ValueId input : graph.inputs(op)) {
      const auto producer = graph.producer(input);
      if (producer && decision.segments[*producer] < segment) decision.kept[input] = true;
    }
  }
  return decision;
}

// Offers the sequence's plan, and says whether it is within the budget.
bool Search::fits(const LowerSetSequence& sequence) {
  const auto peak = candidates_.offer(plan_from_kept(problem_.graph, decision_of(sequence)));
  return peak && problem_.budget.allows(*peak);
}

// Budgets for the formula from `low` to `high`, evenly on a logarithmic scale.
std::vector<Bytes> budgets_between(Bytes low, Bytes high, int steps) {
  std::vector<Bytes> budgets;
  const double ratio = static_cast<double>(high.count()) / static_cast<double>(low.count());
  for (int i = 0; i <= steps; ++i) {
    const double share = std::pow(ratio, static_cast<double>(i) / steps);
    const auto bytes = static_cast<std::int64_t>(static_cast<double>(low.count()) * share);
    budgets.push_back(std::clamp(Bytes{bytes}, low, high));
  }
  return budgets;
}

// How often a program over this many sets can be run in about a second, between `least` and `most`.
int runs(std::size_t sets, double pairs, int least, int most) {
  const double affordable = pairs / (static_cast<double>(sets) * static_cast<double>(sets));
  return static_cast<int>(std::clamp(affordable, double{1} * least, double{1} * most));
}

void Search::search(const std::optional<LowerSets>& family) {
  if (!family) return candidates_.gave_up(watch_);
  const LowerSetProgram program(nodes_.forward, *family);
  const auto smallest =
      program.smallest_budget(possible_.value_or(program.largest_budget()), room_);
  if (!smallest || *smallest == Bytes{0}) {
    if (!smallest) candidates_.gave_up(watch_);
    return;
  }
  possible_ = smallest;
  const Bytes one_segment = Bytes{2 * family->bytes(family->size() - 1)};
  const Bytes asked = problem_.budget.bytes.value_or(Bytes{0});

  for (const Bytes budget :
       budgets_between(*smallest, one_segment, runs(family->size(), 4e8, 8, 64))) {
    if (!try_fewest_bytes(program, budget)) return candidates_.gave_up(watch_);
  }
  if (problem_.objective == Objective::memory) return;
  int misses = 0;
  for (const Bytes budget : budgets_between(std::clamp(asked, *smallest, one_segment), one_segment,
                                            runs(family->size(), 1e8, 3, 12))) {
    const auto fitted = try_front(program, budget);
    if (!fitted) return candidates_.gave_up(watch_);
    if (!*fitted && ++misses == 2) return;
  }
}

bool Search::try_fewest_bytes(const LowerSetProgram& program, Bytes budget) {
  LowerSetProgram::Options options;
  options.room = room_;
  options.states_per_set = 1;
  const auto front = program.run(budget, options);
  if (front) fits(front->sequence(0));
  return front.has_value();
}

// The more cost a sequence keeps, the larger its plan's peak and the lower its cost, mostly. So
// with a budget the one is searched for with which plans stop to fit, and its neighbours are tried;
// else some from all over.
std::optional<bool> Search::try_front(const LowerSetProgram& program, Bytes budget) {
  constexpr std::size_t kStates = 1024;
  constexpr std::size_t kNeighbours = 8;
  constexpr std::size_t kSamples = 32;
  LowerSetProgram::Options options;
  options.room = room_;
  options.states_per_set = kStates;
  const auto front = program.run(budget, options);
  if (!front) return std::nullopt;
  if (!problem_.budget.bytes) {
    for (std::size_t i = 0; i < kSamples; ++i) {
      fits(front->sequence(i * (front->size() - 1) / (kSamples - 1)));
    }
    return true;
  }
  bool any = fits(front->sequence(0));
  std::size_t least = 0;
  std::size_t most = front->size();
  while (any && most - least > 1) {
    const std::size_t middle = least + (most - least) / 2;
    (fits(front->sequence(middle)) ? least : most) = middle;
  }
  for (std::size_t i = most; i < std::min(front->size(), most + kNeighbours); ++i) {
    any = fits(front->sequence(i)) || any;
  }
  return any;
}

}  // namespace

Findings lower_set(const Problem& problem, const Limits& limits) {
  return Search(problem, limits).run(false);
}

Findings lower_set_exact(const Problem& problem, const Limits& limits) {
  return Search(problem, limits).run(true);
}

}  // namespace reprise
