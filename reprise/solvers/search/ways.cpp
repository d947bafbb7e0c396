// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/ways.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/core/units.h"
#include "reprise/solvers/bounds/smallest_peak.h"
#include "reprise/solvers/search/cut_plans.h"

namespace reprise {
namespace {

constexpr std::int64_t kHeld = 8;      // shares of what a block can hold, to solve it for …
constexpr std::int64_t kPeaks = 3;     // … halvings of its peak, likewise
constexpr int kMostCuts = 100;         // for each
constexpr std::size_t kMostWays = 40;  // that are weighed

}  // namespace

Ways::Ways(const Graph& graph, const Block& block, const std::function<bool()>& must_stop)
    : between_{static_cast<std::uint32_t>(block.forward.size())} {
  const Graph alone = block_graph(graph, block, Bytes{0});
  add(alone, program_order(alone));
  add_pass(alone);
  add_cuts(graph, block, alone, must_stop);
  keep_the_good();
}

void Ways::add(const Graph& alone, const std::vector<OpId>& order) {
  const Plan plan = with_earliest_frees(alone, order);
  const Replay replay = simulate(alone, plan);
  Way way;
  way.again = replay.cost - alone.base_cost();
  bool is_after = false;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].kind() != StepKind::compute) continue;
    const OpId op = plan.steps[i].op();
    if (op == between_) {
      is_after = true;
      way.held = replay.in_use[i];
      for (const ValueId output : alone.outputs(op)) way.held -= alone.bytes(output);
      continue;
    }
    (is_after ? way.after : way.before).push_back(op.index);
    Bytes& peak = is_after ? way.peak_after : way.peak_before;
    peak = std::max(peak, replay.in_use[i]);
  }
  all_.push_back(std::move(way));
}

// Everything again, as far as it can be.
void Ways::add_pass(const Graph& alone) {
  std::vector<OpId> order;
  for (const OpId op : alone.ops()) {
    order.push_back(op);
    if (op != between_) continue;
    for (OpId again{0}; again < between_; ++again.index) {
      if (alone.recomputable(again)) order.push_back(again);
    }
  }
  add(alone, order);
  pass_ = {all_.back().peak_before, all_.back().held, all_.back().held};
  for (const ValueId value : alone.inputs(between_)) {
    if (alone.recomputable(*alone.producer(value))) pass_.stays -= alone.bytes(value);
  }
}

// In between, workspace takes what is not to be held.
void Ways::add_cuts(const Graph& graph, const Block& block, const Graph& alone,
                    const std::function<bool()>& must_stop) {
  const std::vector<OpId> program = program_order(alone);
  const Bytes most = base_peak(alone);
  const Bytes least = smallest_peak_bound(alone).bytes;
  const std::int64_t all_held = all_.front().held.count();
  for (std::int64_t p = 0; p <= kPeaks; ++p) {
    const Bytes peak = least + Bytes{(most - least).count() >> p};
    for (std::int64_t h = 0; h < kHeld; ++h) {
      const auto held = Bytes{static_cast<std::int64_t>(Wide{all_held} * h / kHeld)};
      if (held > peak) break;
      if (must_stop()) return;
      int cuts_left = kMostCuts;
      const auto stop = [&] { return --cuts_left < 0 || must_stop(); };
      const Graph held_so_far = block_graph(graph, block, peak - held);
      for (const PlanOrder& plan : cut_plans(held_so_far, program, peak, stop)) {
        add(alone, plan.order);
      }
    }
  }
}

// No way stays that another one is as good as in everything; of too many, some.
void Ways::keep_the_good() {
  std::sort(all_.begin(), all_.end(), [](const Way& a, const Way& b) {
    return std::tie(a.again, a.held, a.peak_after, a.peak_before) <
           std::tie(b.again, b.held, b.peak_after, b.peak_before);
  });
  std::vector<Way> good;
  for (Way& way : all_) {
    const bool is_no_better = std::any_of(good.begin(), good.end(), [&](const Way& other) {
      return other.held <= way.held && other.peak_after <= way.peak_after &&
             other.peak_before <= way.peak_before;
    });
    if (!is_no_better) good.push_back(std::move(way));
  }
  const std::size_t count = std::min(good.size(), kMostWays);
  all_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    all_.push_back(std::move(good[i * good.size() / count]));
  }
}

}  // namespace reprise
