// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "reprise/solvers/bounds/moment.h"

namespace reprise {

// What has to be paid after a moment where at most `room` is kept at it, in whole values: none is
// kept in part.
struct Whole {
  Cost cost;    // no choice costs less
  bool solved;  // and one costs no more
};

// By branch and bound on the ops that run again: always the part with the lowest bound by a cut is
// split in two, until `nodes` were or `must_stop`. Some choice keeps at most the room.
Whole solve_whole(MomentCuts& cuts, Bytes room, std::int64_t nodes,
                  const std::function<bool()>& must_stop);

}  // namespace reprise
