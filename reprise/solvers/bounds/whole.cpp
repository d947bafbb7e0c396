// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/whole.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace reprise {
namespace {

// Some ops run again, some do not; the rest is open.
struct Part {
  Cost bound;
  std::vector<std::pair<OpId, bool>> fixed;
  OpId split;
};

// The lowest bound first, of equal ones the part where more is fixed.
struct ComesLater {
  bool operator()(const Part& a, const Part& b) const {
    return std::pair(a.bound, b.fixed.size()) > std::pair(b.bound, a.fixed.size());
  }
};

}  // namespace

Whole solve_whole(MomentCuts& cuts, Bytes room, std::int64_t nodes,
                  const std::function<bool()>& must_stop) {
  std::priority_queue<Part, std::vector<Part>, ComesLater> open;
  std::optional<Cost> cheapest;  // of all choices met
  const auto look = [&](std::vector<std::pair<OpId, bool>> fixed, Cost at_least) {
    cuts.fix(fixed);
    const auto bound = cuts.best(room);
    if (!bound) return;
    cheapest = cheapest ? std::min(*cheapest, bound->inside.cost) : bound->inside.cost;
    if (!bound->split) return;  // this part is solved
    open.push({std::max(at_least, bound->cost), std::move(fixed), *bound->split});
  };
  look({}, Cost{0});
  while (!open.empty() && open.top().bound < *cheapest && nodes-- > 0 && !must_stop()) {
    const Part part = open.top();
    open.pop();
    for (const bool again : {true, false}) {
      auto fixed = part.fixed;
      fixed.emplace_back(part.split, again);
      look(std::move(fixed), part.bound);
    }
  }
  cuts.fix({});
  const bool solved = open.empty() || open.top().bound >= *cheapest;
  return {solved ? cheapest.value_or(Cost{0}) : open.top().bound, solved};
}

}  // namespace reprise
