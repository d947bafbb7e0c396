// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/search/shorten.h"

#include <algorithm>

#include "reprise/solvers/search/sequence.h"

namespace reprise {

PlanOrder shortened(const Graph& graph, const PlanOrder& plan, Bytes room,
                    const std::function<bool()>& must_stop) {
  Sequence sequence(graph, plan.order);
  const std::int64_t most = std::max(room, plan.peak).count();
  for (Slot slot = sequence.slots(); slot-- > 0;) {
    if (sequence.empty(slot)) continue;
    if (must_stop()) break;
    const OpId op = sequence.at(slot);
    if (!sequence.can_remove(op, slot)) continue;
    sequence.forget();
    sequence.remove(op, slot);
    if (sequence.peak() > most) sequence.undo();
  }
  return {sequence.order(), Cost{sequence.cost()}, Bytes{sequence.peak()}};
}

}  // namespace reprise
