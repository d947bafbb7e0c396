// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/walk.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "reprise/solvers/search/moves.h"
#include "reprise/solvers/search/sequence.h"

namespace reprise {
namespace {

constexpr std::int64_t kCheckEvery = 256;  // moves, between two looks at the clock
constexpr std::int64_t kMovesAbove = 500;  // the budget, before the price rises …
constexpr double kRise = 1.5;              // … so many times …
constexpr double kFall = 0.999;            // … and falls with each move inside it
constexpr std::int64_t kOpsAMove = 500;    // of a graph, between two orders that are written down
constexpr double kHighest = 1000;          // times the price at the beginning

// Do cost and peak, which were kept up to date move by move, agree with a full simulation?
[[maybe_unused]] bool is_exact(const Graph& graph, const PlanOrder& plan) {
  const PlanOrder anew = plan_order(graph, plan.order);
  return anew.cost == plan.cost && anew.peak == plan.peak;
}

}  // namespace

Walked walk(const Graph& graph, const Budget& budget, const PlanOrder& start, const Walk& how,
            const std::function<bool()>& must_stop) {
  Sequence sequence(graph, start.order);
  Dice dice(how.seed);
  Moves moves(sequence, dice, how.in_use);
  Walked walked{start, 0};
  // In large graphs an order takes long to write down: not each better one is, but the last one is.
  const auto pause = static_cast<std::int64_t>(graph.ops().size()) / kOpsAMove;
  std::int64_t written_at = -pause;
  const auto note_if_better = [&] {
    const PlanOrder here{{}, Cost{sequence.cost()}, Bytes{sequence.peak()}};
    if (!better(here, walked.best, budget)) return;
    written_at = walked.moves;
    walked.best = here;
    walked.best.order = sequence.order();
    assert(is_exact(graph, walked.best));
    if (how.found && budget.allows(here.peak)) how.found(here.cost);
  };
  const std::int64_t room = how.room.count();
  double price = how.byte_price;
  const std::int64_t most_above =
      std::min<std::int64_t>(kMovesAbove, 10 * static_cast<std::int64_t>(graph.ops().size()));
  std::int64_t above = 0;  // moves since it was inside the room
  const auto priced = [&] {
    const std::int64_t excess = std::max<std::int64_t>(0, sequence.peak() - room);
    return static_cast<double>(sequence.cost()) + price * static_cast<double>(excess);
  };

  const double cooling = std::log(how.cold / how.hot) / static_cast<double>(how.moves);
  double temperature = how.hot;
  const auto is_enough = [&] {
    return how.enough && budget.allows(walked.best.peak) && walked.best.cost <= *how.enough;
  };
  for (; walked.moves < how.moves; ++walked.moves) {
    if (walked.moves % kCheckEvery == 0) {
      if (must_stop() || is_enough()) break;
      temperature = how.hot * std::exp(cooling * static_cast<double>(walked.moves));
    }
    if (sequence.peak() <= room) {
      above = 0;
      price = std::max(how.byte_price, price * kFall);
    } else if (++above % most_above == 0) {
      price = std::min(price * kRise, how.byte_price * kHighest);
    }
    // What the move may lead to is drawn before it, so that a hopeless one is given up on the way.
    const double most = priced() - temperature * std::log(1 - dice.unit());
    sequence.forget();
    const bool moved = moves.any({room, price, most});
    if (moved && priced() <= most) {
      if (walked.moves >= written_at + pause) note_if_better();
    } else {
      sequence.undo();
    }
    sequence.make_room();
  }
  note_if_better();
  return walked;
}

}  // namespace reprise
