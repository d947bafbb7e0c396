// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/sequence.h"

#include <algorithm>
#include <utility>

namespace reprise {
namespace {

constexpr Slot kSpacing = 8;  // slots a run, when they are spread evenly
constexpr std::int64_t kMostBytes = std::int64_t{1} << 58;
constexpr Slot kMostMoved = 64;  // runs, to make a gap, or it is given up
constexpr Slot kCrowded = 3;     // so many moved runs say that room has to be made there …
constexpr Slot kEnough = 4;      // … of these slots a run

}  // namespace

bool Sequence::can_hold(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const ValueId value : graph.values()) {
    if (!graph.resident(value)) bytes += graph.bytes(value).count();
    if (bytes > kMostBytes) return false;
  }
  for (const OpId op : graph.ops()) {
    if (graph.workspace(op).count() > kMostBytes) return false;
  }
  return graph.base_cost().count() < kMostCost / 16 &&
         graph.ops().size() < UINT32_MAX / kSpacing / 16;
}

Sequence::Sequence(const Graph& graph, std::span<const OpId> order)
    : graph_(graph),
      runs_(graph.ops().size()),
      place_in_run_again_(graph.ops().size(), kNone),
      overwritable_(graph.values().size(), false) {
  for (const ValueId value : graph.values()) {
    if (const auto input = graph.overwritten(value)) overwritable_[*input] = true;
  }
  lay_out(order);
}

void Sequence::lay_out(std::span<const OpId> order) {
  op_at_.assign((order.size() + 1) * kSpacing, kNone);
  memory_ = PeakTree(op_at_.size());
  cost_ = 0;
  log_.clear();
  run_again_.clear();
  for (const OpId op : graph_.ops()) {
    runs_[op].clear();
    place_in_run_again_[op] = kNone;
  }
  Slot slot = 0;
  for (const OpId op : order) put(op, slot += kSpacing);
  for (const OpId op : graph_.ops()) {
    for (const ValueId output : graph_.outputs(op)) {
      for (const Slot made : runs_[op]) {
        memory_.add(made, end(output, made), graph_.bytes(output).count());
      }
    }
    for (const Slot run : runs_[op]) memory_.add(run, run + 1, graph_.workspace(op).count());
  }
}

std::vector<OpId> Sequence::order() const {
  std::vector<OpId> order;
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (!empty(slot)) order.push_back(at(slot));
  }
  return order;
}

bool Sequence::overwrites(OpId op, ValueId input) const {
  if (!overwritable_[input]) return false;
  for (const ValueId output : graph_.outputs(op)) {
    if (graph_.overwritten(output) == input) return true;
  }
  return false;
}

Slot Sequence::maker(OpId op, Slot slot) const {
  const std::vector<Slot>& runs = runs_[op];
  for (std::size_t i = runs.size(); i-- > 0;) {
    if (runs[i] < slot) return runs[i];
  }
  return kNone;
}

Slot Sequence::next_maker(OpId op, Slot slot) const {
  for (const Slot run : runs_[op]) {
    if (run >= slot) return run;
  }
  return slots();
}

Slot Sequence::last_read_between(ValueId value, Slot after, Slot before) const {
  Slot last = after;
  for (const OpId reader : graph_.consumers(value)) {
    const std::vector<Slot>& runs = runs_[reader];
    for (std::size_t i = runs.size(); i-- > 0 && runs[i] > last;) {
      if (runs[i] >= before) continue;
      last = runs[i];
      break;
    }
  }
  return last;
}

Slot Sequence::end_of(ValueId value, Slot made, Slot read, bool last_copy) const {
  if (last_copy && graph_.kept(value)) return slots();
  return read != made && overwrites(at(read), value) ? read : read + 1;
}

Slot Sequence::end(ValueId value, Slot made) const {
  const Slot next = next_maker(*graph_.producer(value), made + 1);
  return end_of(value, made, last_read_between(value, made, next), next == slots());
}

Slot Sequence::last_read(ValueId value, Slot made) const {
  const Slot next = next_maker(*graph_.producer(value), made + 1);
  if (next == slots() && graph_.kept(value)) return slots();
  return last_read_between(value, made, next);
}

Slot Sequence::first_read(ValueId value, Slot after) const {
  Slot first = next_maker(*graph_.producer(value), after + 1);
  bool found = false;
  for (const OpId reader : graph_.consumers(value)) {
    for (const Slot run : runs_[reader]) {
      if (run <= after) continue;
      if (run < first) {
        first = run;
        found = true;
      }
      break;
    }
  }
  return found ? first : slots();
}

Slot Sequence::earliest(OpId op) const {
  Slot earliest = 0;
  for (const ValueId input : graph_.inputs(op)) {
    if (const auto producer = graph_.producer(input)) {
      earliest = std::max(earliest, runs_[*producer].front() + 1);
    }
  }
  return earliest;
}

bool Sequence::useless(OpId op, Slot slot) const {
  if (runs_[op].size() == 1) return false;
  const Slot next = next_maker(op, slot + 1);
  for (const ValueId output : graph_.outputs(op)) {
    if (next == slots() && graph_.kept(output)) return false;
    if (last_read_between(output, slot, next) != slot) return false;
  }
  return true;
}

bool Sequence::can_remove(OpId op, Slot slot) const {
  const std::vector<Slot>& runs = runs_[op];
  if (runs.size() == 1) return false;
  if (slot != runs.front()) return true;
  for (const ValueId output : graph_.outputs(op)) {
    for (const OpId reader : graph_.consumers(output)) {
      if (runs_[reader].front() < runs[1]) return false;
    }
  }
  return true;
}

// The difference that a run of `op` at `slot`, which is not in the lists now, makes to the memory,
// times `sign`.
void Sequence::price(OpId op, Slot slot, std::int64_t sign) {
  const Slot before = maker(op, slot);
  const Slot next = next_maker(op, slot);
  const bool last = next == slots();
  for (const ValueId output : graph_.outputs(op)) {
    const std::int64_t bytes = sign * graph_.bytes(output).count();
    if (bytes == 0) continue;
    const Slot read = last_read_between(output, slot, next);
    const Slot end = end_of(output, slot, read, last);
    if (before == kNone) {
      memory_.add(slot, end, bytes);
      continue;
    }
    // Without this run the copy made before serves all; with it, those that come before it.
    const Slot read_before = last_read_between(output, before, slot);
    const Slot end_before = end_of(output, before, read_before, false);
    const bool serves = read != slot || (last && graph_.kept(output));
    if (serves) {
      memory_.add(end_before, slot, -bytes);
      // In one piece up to the same end: the reads after `slot` are the same.
    } else {
      memory_.add(slot, end, bytes);
    }
  }
  for (const ValueId input : graph_.inputs(op)) {
    const std::int64_t bytes = sign * graph_.bytes(input).count();
    if (bytes == 0 || graph_.resident(input)) continue;
    const OpId producer = *graph_.producer(input);
    const Slot made = maker(producer, slot);
    const Slot remade = next_maker(producer, slot);
    const bool last_copy = remade == slots();
    if (last_copy && graph_.kept(input)) continue;
    const Slot read = last_read_between(input, made, remade);
    if (read > slot) continue;
    const Slot end = end_of(input, made, read, last_copy);
    memory_.add(end, overwrites(op, input) ? slot : slot + 1, bytes);
  }
  if (const std::int64_t workspace = graph_.workspace(op).count(); workspace != 0) {
    memory_.add(slot, slot + 1, sign * workspace);
  }
}

void Sequence::put(OpId op, Slot slot) {
  op_at_[slot] = op.index;
  std::vector<Slot>& runs = runs_[op];
  runs.insert(std::upper_bound(runs.begin(), runs.end(), slot), slot);
  if (runs.size() == 2) {
    place_in_run_again_[op] = static_cast<std::uint32_t>(run_again_.size());
    run_again_.push_back(op);
  }
  memory_.count_in(slot);
  cost_ += graph_.cost(op).count();
}

void Sequence::take(OpId op, Slot slot) {
  op_at_[slot] = kNone;
  std::vector<Slot>& runs = runs_[op];
  runs.erase(std::find(runs.begin(), runs.end(), slot));
  if (runs.size() == 1) {
    const std::uint32_t place = place_in_run_again_[op];
    run_again_[place] = run_again_.back();
    place_in_run_again_[run_again_[place]] = place;
    run_again_.pop_back();
    place_in_run_again_[op] = kNone;
  }
  memory_.leave_out(slot);
  cost_ -= graph_.cost(op).count();
}

void Sequence::insert(OpId op, Slot slot) {
  price(op, slot, 1);
  put(op, slot);
  log_.push_back({op, slot, true});
}

void Sequence::remove(OpId op, Slot slot) {
  take(op, slot);
  price(op, slot, -1);
  log_.push_back({op, slot, false});
}

void Sequence::undo() {
  while (!log_.empty()) {
    const Change change = log_.back();
    if (change.inserted) {
      remove(change.op, change.slot);
    } else {
      insert(change.op, change.slot);
    }
    log_.resize(log_.size() - 2);
  }
}

Slot Sequence::gap_before(Slot slot) {
  if (slot == 0) return kNone;
  Slot gap = slot - 1;
  for (Slot moved = 0; !empty(gap); --gap, ++moved) {
    if (moved == kCrowded - 1) crowded_ = slot;
    if (gap == 0 || moved == kMostMoved) {
      crowded_ = slot;
      return kNone;
    }
  }
  for (; gap + 1 < slot; ++gap) shift(gap + 1, gap);
  return gap;
}

// Memory and cost are the same: no run stands between the two slots.
void Sequence::shift(Slot from, Slot to) {
  const OpId op = at(from);
  remove(op, from);
  insert(op, to);
}

void Sequence::make_room() {
  if (crowded_ == kNone) return;
  const Slot middle = std::exchange(crowded_, kNone);
  forget();
  std::vector<Slot> crowd;
  for (Slot reach = 4 * kSpacing;; reach *= 2) {
    const Slot begin = middle > reach ? middle - reach : 1;
    const Slot end = std::min(middle + reach, slots());
    crowd.clear();
    for (Slot slot = begin; slot < end; ++slot) {
      if (!empty(slot)) crowd.push_back(slot);
    }
    const std::size_t room = end - begin;
    if (crowd.size() * kEnough <= room) {
      const auto target = [&](std::size_t i) {
        return static_cast<Slot>(begin + (2 * i + 1) * room / (2 * crowd.size()));
      };
      for (std::size_t i = 0; i < crowd.size(); ++i) {
        if (target(i) < crowd[i]) shift(crowd[i], target(i));
      }
      for (std::size_t i = crowd.size(); i-- > 0;) {
        if (target(i) > crowd[i]) shift(crowd[i], target(i));
      }
      forget();
      return;
    }
    if (begin == 1 && end == slots()) break;
  }
  lay_out(order());
}

}  // namespace reprise
