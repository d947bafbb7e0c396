// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/moves.h"

#include <vector>

namespace reprise {
namespace {

constexpr int kTries = 30;          // to meet by chance what a move needs
constexpr int kLongestChain = 40;   // of ops that run again for one another
constexpr int kMostPulled = 3;      // ops, one for another
constexpr int kMostRepairs = 4;     // after a run was taken out
constexpr std::size_t kReach = 64;  // slots, of a short slide
constexpr std::uint32_t kNear = 4;  // runs, from the peak to one near it
constexpr double kKeepInput = 0.4;  // rather than run its op again, too

// How likely each move is; the rest are slides, some of them of runs near the peak.
struct Odds {
  double exchange;
  double relieve;
  double stop;
  double near_peak;
};
constexpr Odds kAbove{0, 0.6, 0.1, 0.5};  // the budget
constexpr Odds kInside{0.35, 0.15, 0.05, 0.3};

constexpr double kDrop = 0.5;  // of what relieves the peak; the rest are pushes
constexpr double kPull = 0.25;
constexpr double kLatest = 0.3;  // of slides; the rest go a short way
constexpr double kEarliest = 0.2;
constexpr double kAnywhere = 0.25;

}  // namespace

// Over the budget the peak has to be relieved. Below it, runs are to be saved: one is left out, and
// if that takes too much, the peak relieved in another way.
bool Moves::any(const Aim& aim) {
  aim_ = aim;
  const Odds& odds = sequence_.peak() > aim.room ? kAbove : kInside;
  double toss = dice_.unit();
  if ((toss -= odds.exchange) < 0) return exchange();
  if ((toss -= odds.relieve) < 0) return relieve();
  if (toss < odds.stop) return in_use_.has(Technique::stop) && leave_out();
  return slide(dice_.chance(odds.near_peak) ? some_run_near(sequence_.peak_slot()) : some_run());
}

bool Moves::relieve() {
  const Slot peak = sequence_.peak_slot();
  const double toss = dice_.unit();
  if (toss < kDrop) return drop(peak);
  return toss < kDrop + kPull ? pull(peak) : push(peak);
}

// A copy that is there at `slot`, made before it and read after it.
std::optional<Moves::Copy> Moves::some_copy_across(Slot slot) {
  for (int i = 0; i < kTries; ++i) {
    const OpId op{dice_.below(graph_.ops().size())};
    const auto outputs = graph_.outputs(op);
    const Slot made = sequence_.maker(op, slot);
    if (outputs.empty() || made == Sequence::kNone) continue;
    const ValueId value = outputs[outputs.size() == 1 ? 0 : dice_.below(outputs.size())];
    if (sequence_.last_read(value, made) > slot) return Copy{value, made};
  }
  return std::nullopt;
}

// Lets a value go that is there at `across`, and runs its op again where it is read next.
bool Moves::drop(Slot across) {
  if (!in_use_.has(Technique::drop)) return false;
  const auto copy = some_copy_across(across);
  if (!copy) return false;
  const OpId op = *graph_.producer(copy->value);
  if (!graph_.recomputable(op)) return false;
  // The peak falls by these bytes at most: that is what the runs may cost.
  const std::int64_t excess_left = excess() - graph_.bytes(copy->value).count();
  most_cost_ = std::min(aim_.most, static_cast<double>(Sequence::kMostCost)) -
               aim_.byte_price * static_cast<double>(std::max<std::int64_t>(0, excess_left));
  return bring_back(op, sequence_.first_read(copy->value, across), across, 0);
}

// Runs `op` once more before the slot `before`. An input that would have to stay there since before
// `across` stays, or its op runs again, too, and so on.
bool Moves::bring_back(OpId op, Slot before, Slot across, int depth) {
  const double cost = static_cast<double>(sequence_.cost() + graph_.cost(op).count());
  if (depth > kLongestChain || cost > most_cost_) return false;
  const Slot gap = sequence_.gap_before(before);
  if (gap == Sequence::kNone) return false;
  std::vector<OpId> again;
  for (const ValueId input : graph_.inputs(op)) {
    if (!in_use_.has(Technique::chain) || graph_.resident(input)) continue;
    const OpId producer = *graph_.producer(input);
    if (!graph_.recomputable(producer) || graph_.bytes(input) == Bytes{0}) continue;
    const Slot end = sequence_.end(input, sequence_.maker(producer, gap));
    const bool stays_across = end <= gap && end <= across + 1;
    if (stays_across && !dice_.chance(kKeepInput)) again.push_back(producer);
  }
  sequence_.insert(op, gap);
  for (const OpId producer : again) {
    const bool is_back = sequence_.maker(producer, gap) > across;  // for another input
    if (!is_back && !bring_back(producer, gap, across, depth + 1)) return false;
  }
  return true;
}

// Runs the last reader of a value that is there at `across` before it.
bool Moves::pull(Slot across) {
  if (!in_use_.has(Technique::pull)) return false;
  const auto copy = some_copy_across(across);
  if (!copy) return false;
  const Slot read = sequence_.last_read(copy->value, copy->made);
  return read != sequence_.slots() && pull_run(sequence_.at(read), read, across, 0);
}

// Moves the run at `from` to before `before`, and first runs that it needs with it.
bool Moves::pull_run(OpId op, Slot from, Slot before, int depth) {
  const Slot previous = sequence_.maker(op, from);
  if (previous != Sequence::kNone && previous >= before) return false;
  for (const ValueId input : graph_.inputs(op)) {
    const auto producer = graph_.producer(input);
    if (!producer) continue;
    const Slot made = sequence_.runs(*producer).front();
    if (made < before) continue;
    if (depth == kMostPulled || !pull_run(*producer, made, before, depth + 1)) return false;
  }
  const Slot gap = sequence_.gap_before(before);
  if (gap == Sequence::kNone || gap < sequence_.earliest(op)) return false;
  sequence_.remove(op, from);
  sequence_.insert(op, gap);
  return true;
}

// Makes a value that is there at `across` only after it, just before it is read.
bool Moves::push(Slot across) {
  if (!in_use_.has(Technique::push)) return false;
  const auto copy = some_copy_across(across);
  if (!copy) return false;
  const OpId op = *graph_.producer(copy->value);
  Slot read = sequence_.next_maker(op, copy->made + 1);
  for (const ValueId output : graph_.outputs(op)) {
    read = std::min(read, sequence_.first_read(output, copy->made));
  }
  if (read <= across || read == sequence_.slots()) return false;
  const Slot gap = sequence_.gap_before(read);
  if (gap == Sequence::kNone || gap <= across) return false;
  sequence_.remove(op, sequence_.maker(op, gap));
  sequence_.insert(op, gap);
  return true;
}

// Leaves out a run of an op that has several.
bool Moves::leave_out() {
  const std::vector<OpId>& candidates = sequence_.run_again();
  if (candidates.empty()) return false;
  const OpId op = candidates[dice_.below(candidates.size())];
  const auto runs = sequence_.runs(op);
  const Slot slot = runs[dice_.below(runs.size())];
  if (!sequence_.can_remove(op, slot)) return false;
  remove_with_cause(op, slot);
  return true;
}

// Removes a run, and those that were for it alone.
void Moves::remove_with_cause(OpId op, Slot slot) {
  sequence_.remove(op, slot);
  if (!in_use_.has(Technique::unwind)) return;
  for (const ValueId input : graph_.inputs(op)) {
    const auto producer = graph_.producer(input);
    if (!producer) continue;
    const Slot made = sequence_.maker(*producer, slot);
    if (made == Sequence::kNone) continue;
    if (sequence_.useless(*producer, made) && sequence_.can_remove(*producer, made)) {
      remove_with_cause(*producer, made);
    }
  }
}

bool Moves::exchange() {
  if (!in_use_.has(Technique::exchange) || !leave_out()) return false;
  for (int i = 0; i < kMostRepairs && sequence_.peak() > aim_.room; ++i) {
    if (!relieve()) return false;
  }
  return true;
}

Slot Moves::some_run() {
  while (true) {
    const Slot slot = dice_.below(sequence_.slots());
    if (!sequence_.empty(slot)) return slot;
  }
}

// A few runs away from `slot`, where there is a run.
Slot Moves::some_run_near(Slot slot) {
  const std::uint32_t toss = dice_.below(2 * kNear + 1);
  const bool forward = toss > kNear;
  Slot found = slot;
  for (std::uint32_t away = forward ? toss - kNear : kNear - toss; away > 0;) {
    if (forward ? slot + 1 >= sequence_.slots() : slot == 0) break;
    slot = forward ? slot + 1 : slot - 1;
    if (sequence_.empty(slot)) continue;
    found = slot;
    --away;
  }
  return found;
}

// Moves a run to another place between the first time that it could run and what reads it.
bool Moves::slide(Slot slot) {
  if (!in_use_.has(Technique::slide)) return false;
  const OpId op = sequence_.at(slot);
  const Slot previous = sequence_.maker(op, slot);
  const Slot low = previous == Sequence::kNone ? sequence_.earliest(op) : previous + 1;
  Slot high = sequence_.next_maker(op, slot + 1);  // one past the last place
  for (const ValueId output : graph_.outputs(op)) {
    high = std::min(high, sequence_.first_read(output, slot));
  }
  const double toss = dice_.unit();
  Slot target = low;
  if (toss < kLatest) {
    target = high - 1;
  } else if (toss >= kLatest + kEarliest + kAnywhere) {
    const Slot reach = 1 + dice_.below(kReach);
    const bool later = dice_.chance(0.5);
    target = later ? std::min(slot + reach, high - 1) : std::max(slot, low + reach) - reach;
  } else if (toss >= kLatest + kEarliest) {
    target = low + dice_.below(high - low);
  }
  Slot empty = target;
  while (empty < high && !sequence_.empty(empty)) ++empty;
  if (empty == high) {
    for (empty = target; empty > low && !sequence_.empty(empty);) --empty;
    if (!sequence_.empty(empty)) return false;
  }
  sequence_.remove(op, slot);
  sequence_.insert(op, empty);
  return true;
}

}  // namespace reprise
