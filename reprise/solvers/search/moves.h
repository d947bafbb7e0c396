// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "reprise/solvers/dice.h"
#include "reprise/solvers/search/sequence.h"
#include "reprise/solvers/techniques.h"

namespace reprise {

// Changes a sequence at random, in ways that are likely to make it cheaper or smaller. Every change
// leaves it right; whoever asked judges it and undoes it where it is no good.
class Moves {
 public:
  Moves(Sequence& sequence, Dice& dice, Techniques in_use)
      : sequence_(sequence), graph_(sequence.graph()), dice_(dice), in_use_(in_use) {}

  // What a move has to know: the bytes to stay in, what a byte above them costs, and the cost, with
  // that of such bytes, above which the result will not be taken.
  struct Aim {
    std::int64_t room = 0;
    double byte_price = 0;
    double most = 0;
  };

  // One move. False where nothing came of it, or not all: to be undone.
  bool any(const Aim& aim);

 private:
  struct Copy {
    ValueId value;
    Slot made;
  };

  bool relieve();
  bool drop(Slot across);
  bool bring_back(OpId op, Slot before, Slot across, int depth);
  bool pull(Slot across);
  bool pull_run(OpId op, Slot from, Slot before, int depth);
  bool push(Slot across);
  bool leave_out();
  void remove_with_cause(OpId op, Slot slot);
  bool exchange();
  bool slide(Slot slot);
  Slot some_run();
  Slot some_run_near(Slot slot);

  std::optional<Copy> some_copy_across(Slot slot);
  std::int64_t excess() const { return std::max<std::int64_t>(0, sequence_.peak() - aim_.room); }

  Sequence& sequence_;
  const Graph& graph_;
  Dice& dice_;
  Techniques in_use_;
  Aim aim_;
  double most_cost_ = 0;  // of the move under way, all told
};

}  // namespace reprise
