// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "reprise/solvers/plan_order.h"
#include "reprise/solvers/techniques.h"

namespace reprise {

// How to walk from plan to plan. Better ones are taken, worse ones the likelier the hotter it is
// and the less worse they are (simulated annealing: Kirkpatrick et al., 1983). Bytes above the room
// have a price, which rises while it stays above.
struct Walk {
  Bytes room;
  double byte_price = 0;  // to begin with, in cost
  double hot = 0;         // how much dearer is fairly likely to be taken: at the beginning …
  double cold = 0;        // … and at the end
  std::int64_t moves = 0;
  std::uint64_t seed = 0;
  Techniques in_use;
  std::optional<Cost> enough;       // a plan inside the budget at this cost ends the walk
  std::function<void(Cost)> found;  // hears the cost of each best plan so far that fits
};

struct Walked {
  PlanOrder best;  // for the budget, of all that were met
  std::int64_t moves = 0;
};

// Walks from a right plan, until all moves are made or `must_stop`.
Walked walk(const Graph& graph, const Budget& budget, const PlanOrder& start, const Walk& how,
            const std::function<bool()>& must_stop);

}  // namespace reprise
