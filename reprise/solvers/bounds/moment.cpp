// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/moment.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "reprise/core/topology.h"
#include "reprise/solvers/bounds/smallest_peak.h"

namespace reprise {
namespace {

constexpr MaxFlow::Node kSource = 0;
constexpr MaxFlow::Node kSink = 1;
constexpr MaxFlow::Node kFirst = 2;

Wide round_up(Wide amount, Wide step) { return (amount + step - 1) / step * step; }

}  // namespace

Moment moment_of(const Graph& graph, OpId op) {
  Moment moment{op, IdVector<OpId, Moment::When>(graph.ops().size(), Moment::When::either), {}};
  const OpSet before = ancestors(graph, op);
  const OpSet after = descendants(graph, op);
  for (const OpId other : graph.ops()) {
    if (before[other]) moment.first_run[other] = Moment::When::before;
    if (after[other]) moment.first_run[other] = Moment::When::after;
  }
  return moment;
}

MomentCuts::MomentCuts(const Graph& graph, const Moment& moment) : graph_(graph) {
  using When = Moment::When;
  const ValueSet there = own_values(graph, moment.op);

  // From what is needed after the moment back to whatever that may need.
  place_ = IdVector<ValueId, std::uint32_t>(graph.values().size(), kNone);
  op_place_ = IdVector<OpId, std::uint32_t>(graph.ops().size(), kNone);
  Bytes total_bytes;
  const auto need = [&](ValueId value) {
    if (place_[value] != kNone || graph.resident(value) || there[value]) return;
    const OpId producer = *graph.producer(value);
    if (producer == moment.op || moment.first_run[producer] == When::after) return;
    const bool in_reach = moment.out_of_reach.empty() || !moment.out_of_reach[value];
    if (in_reach && graph.bytes(value) == Bytes{0}) return;
    place_[value] = static_cast<std::uint32_t>(values_.size());
    values_.push_back({value, 0, in_reach, 0});
    total_bytes += graph.bytes(value);
  };
  for (const OpId op : graph.ops()) {
    if (op == moment.op || moment.first_run[op] != When::after) continue;
    for (const ValueId input : graph.inputs(op)) need(input);
  }
  for (const ValueId value : graph.values()) {
    if (graph.kept(value)) need(value);
  }
  all_ = total_bytes;
  needed_ = values_.size();
  Cost total_cost;
  std::int64_t step = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {  // NOLINT(modernize-loop-convert): it grows
    const OpId op = *graph.producer(values_[i].value);
    if (op_place_[op] == kNone) {
      op_place_[op] = static_cast<std::uint32_t>(ops_.size());
      const Runs runs = moment.first_run[op] != When::before ? Runs::for_free
                        : graph.recomputable(op)             ? Runs::at_a_cost
                                                             : Runs::never_again;
      ops_.push_back({op, runs, 0, 0, std::nullopt});
      total_cost += graph.cost(op);
      step = std::gcd(step, graph.cost(op).count());
      for (const ValueId input : graph.inputs(op)) need(input);
    }
    values_[i].producer = op_place_[op];
  }
  step_ = std::max<std::int64_t>(step, 1);
  const auto bits =
      static_cast<int>(std::bit_width(static_cast<std::uint64_t>(total_cost.count())));
  scale_ = std::clamp(60 - bits, 0, 40);
  highest_price_ = (std::int64_t{1} << 61) / std::max<std::int64_t>(total_bytes.count(), 1);

  flow_ = MaxFlow(kFirst + values_.size() + ops_.size());
  for (OpNode& op : ops_) {
    op.forced = flow_.add(kSource, node(op), 0);
    op.cost = flow_.add(node(op), kSink, 0);
    for (const ValueId input : graph.inputs(op.op)) {
      if (place_[input] != kNone) flow_.add(node(op), kFirst + place_[input], MaxFlow::kNoLimit);
    }
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (i < needed_) flow_.add(kSource, node(values_[i]), MaxFlow::kNoLimit);
    values_[i].kept = flow_.add(node(values_[i]), node(ops_[values_[i].producer]), 0);
  }
}

MaxFlow::Node MomentCuts::node(const ValueNode& value) const {
  return kFirst + static_cast<MaxFlow::Node>(&value - values_.data());
}

MaxFlow::Node MomentCuts::node(const OpNode& op) const {
  return kFirst + static_cast<MaxFlow::Node>(values_.size()) +
         static_cast<MaxFlow::Node>(&op - ops_.data());
}

void MomentCuts::fix(std::span<const std::pair<OpId, bool>> ops) {
  for (OpNode& op : ops_) op.fixed.reset();
  for (const auto& [op, again] : ops) {
    if (op_place_[op] != kNone) ops_[op_place_[op]].fixed = again;
  }
}

// The cheapest cut; none where there is no finite one.
std::optional<Cut> MomentCuts::solve(std::int64_t price, bool costs_matter) {
  flow_.clear_flow();
  for (const ValueNode& value : values_) {
    const std::int64_t bytes = graph_.bytes(value.value).count();
    flow_.set_capacity(value.kept, value.in_reach ? bytes * price : MaxFlow::kNoLimit);
  }
  for (const OpNode& op : ops_) {
    const bool never = op.runs == Runs::never_again || op.fixed == false;
    const bool free = op.runs == Runs::for_free || !costs_matter;
    const std::int64_t cost = free ? 0 : graph_.cost(op.op).count() << scale_;
    flow_.set_capacity(op.cost, never ? MaxFlow::kNoLimit : cost);
    flow_.set_capacity(op.forced, op.fixed == true ? MaxFlow::kNoLimit : 0);
  }
  if (flow_.run(kSource, kSink) >= MaxFlow::kNoLimit) return std::nullopt;
  Cut cut{OpSet(graph_.ops().size(), false), ValueSet(graph_.values().size(), false), {}, {}};
  for (const OpNode& op : ops_) {
    if (!flow_.with_source(node(op))) continue;
    cut.again[op.op] = true;
    if (op.runs == Runs::at_a_cost) cut.cost += graph_.cost(op.op);
  }
  for (const ValueNode& value : values_) {
    const bool needed = flow_.with_source(node(value));
    if (!needed || cut.again[ops_[value.producer].op]) continue;
    cut.kept[value.value] = true;
    cut.bytes += graph_.bytes(value.value);
  }
  return cut;
}

// What `above` keeps too much is let go piece by piece, as `below` does, until the rest fits. A
// piece is ops that run again for one another; early ones come first, as a training step needs them
// last. In a network of many equal layers no price parts them, but this does.
Cut MomentCuts::between(const Cut& above, const Cut& below, Bytes room) const {
  Cut cut = above;
  IdVector<OpId, Cost> costs(graph_.ops().size());
  for (const OpNode& node : ops_) {
    if (node.runs == Runs::at_a_cost) costs[node.op] = graph_.cost(node.op);
  }
  std::vector<std::uint32_t> readers(values_.size(), 0);  // that run after the moment
  for (std::size_t i = 0; i < needed_; ++i) readers[i] = 1;
  for (const OpNode& node : ops_) {
    if (!above.again[node.op]) continue;
    for (const ValueId input : graph_.inputs(node.op)) {
      if (place_[input] != kNone) ++readers[place_[input]];
    }
  }
  const auto run_again = [&](OpId op) {
    cut.again[op] = true;
    cut.cost += costs[op];
    for (const ValueId output : graph_.outputs(op)) {
      const std::uint32_t place = place_[output];
      if (place == kNone || readers[place] == 0) continue;
      cut.kept[output] = false;
      cut.bytes -= graph_.bytes(output);
    }
    for (const ValueId input : graph_.inputs(op)) {
      const std::uint32_t place = place_[input];
      if (place == kNone || readers[place]++ > 0) continue;
      if (cut.again[*graph_.producer(input)]) continue;
      cut.kept[input] = true;
      cut.bytes += graph_.bytes(input);
    }
  };

  std::vector<OpId> open;  // whose neighbours are to be looked at
  const auto enter = [&](std::optional<OpId> op) {
    if (!op || cut.again[*op] || !below.again[*op]) return;
    run_again(*op);
    open.push_back(*op);
  };
  std::vector<OpId> in_order;
  for (const OpNode& node : ops_) in_order.push_back(node.op);
  std::sort(in_order.begin(), in_order.end());
  for (const OpId first : in_order) {
    if (cut.bytes <= room) break;
    enter(first);
    while (!open.empty()) {
      const OpId op = open.back();
      open.pop_back();
      for (const ValueId input : graph_.inputs(op)) enter(graph_.producer(input));
      for (const ValueId output : graph_.outputs(op)) {
        for (const OpId reader : graph_.consumers(output)) enter(reader);
      }
    }
  }
  return cut;
}

Bytes MomentCuts::least() {
  const auto cut = solve(1, false);
  return cut ? cut->bytes : all_;
}

std::optional<MomentCuts::Bound> MomentCuts::best(Bytes room) {
  std::optional<Cut> above = solve(0, true);
  if (!above) return std::nullopt;
  if (above->bytes <= room) return Bound{above->cost, *above, std::nullopt};
  std::optional<Cut> below = solve(1, false);
  if (!below || below->bytes > room) return std::nullopt;

  Wide proven = above->cost.count();
  const auto value = [&](const Cut& cut, std::int64_t price) {
    return (Wide{cut.cost.count()} << scale_) + Wide{(cut.bytes - room).count()} * price;
  };
  while (true) {
    const Wide dearer = Wide{(below->cost - above->cost).count()} << scale_;
    const Wide crossing = dearer / (above->bytes - below->bytes).count();
    const auto price = static_cast<std::int64_t>(std::min(crossing, Wide{highest_price_}));
    std::optional<Cut> cut = solve(price, true);
    proven = std::max(proven, round_up(value(*cut, price), Wide{1} << scale_) >> scale_);
    const bool is_lower = value(*cut, price) < std::min(value(*above, price), value(*below, price));
    if (!is_lower) break;
    (cut->bytes > room ? above : below) = std::move(cut);
  }
  Bound bound{Cost{static_cast<std::int64_t>(round_up(proven, step_))}, *below, {}};
  if (Cut cut = between(*above, *below, room); cut.bytes <= room && cut.cost < bound.inside.cost) {
    bound.inside = std::move(cut);
  }
  if (bound.cost >= bound.inside.cost) return bound;
  Cost largest{-1};
  for (const OpNode& op : ops_) {
    if (below->again[op.op] == above->again[op.op] || graph_.cost(op.op) <= largest) continue;
    largest = graph_.cost(op.op);
    bound.split = op.op;
  }
  return bound;
}

}  // namespace reprise
