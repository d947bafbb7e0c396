// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/candidates.h"

#include <algorithm>
#include <tuple>

#include "reprise/core/simulator.h"

namespace reprise {

std::optional<Bytes> Candidates::offer(Plan plan) try {
  const Replay replay = simulate(problem_.graph, plan);
  reached(replay.peak);
  if (!problem_.budget.allows(replay.peak)) return replay.peak;
  if (found_.plan) {
    const bool better = problem_.budget.bytes
                            ? std::tie(replay.cost, replay.peak) < std::tie(cost_, peak_)
                            : std::tie(replay.peak, replay.cost) < std::tie(peak_, cost_);
    if (!better) return replay.peak;
  }
  peak_ = replay.peak;
  cost_ = replay.cost;
  found_.plan = std::move(plan);
  return replay.peak;
} catch (const OverflowError&) {
  return std::nullopt;  // a plan that costs more than 64 bits hold is none to choose
}

void Candidates::take(Findings found) {
  if (found.smallest_peak) reached(*found.smallest_peak);
  if (found.plan) offer(*std::move(found.plan));
}

void Candidates::gave_up(const Stopwatch& watch) { watch.must_stop() ? stopped() : too_large(); }

void Candidates::reached(Bytes peak) {
  if (!found_.smallest_peak || peak < *found_.smallest_peak) found_.smallest_peak = peak;
}

double Stopwatch::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

std::optional<std::chrono::duration<double>> Stopwatch::left() const {
  using Seconds = std::chrono::duration<double>;
  if (!limits_.time) return std::nullopt;
  return std::max(*limits_.time - Seconds(seconds()), Seconds(0));
}

bool Stopwatch::must_stop() const {
  if (limits_.stop != nullptr && limits_.stop->load(std::memory_order_relaxed)) return true;
  return limits_.time && seconds() >= limits_.time->count();
}

void Stopwatch::report(std::string_view doing) const {
  if (limits_.progress) limits_.progress(doing);
}

}  // namespace reprise
