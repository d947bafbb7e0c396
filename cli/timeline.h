// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/words.h"
#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/core/simulator.h"

namespace reprise::cli {

struct TimelineRun {
  const Plan& plan;
  const Replay& replay;
};

// Draws the bytes in use over the program: bars for the plan, dots for the plain run, a line for
// the budget, the peak marked. The horizontal axis is how many different ops have run, so that the
// two runs stand under each other; what runs again is drawn where the program waits for it.
std::string draw_timeline(const Graph& graph, const TimelineRun& plan, const TimelineRun& plain,
                          std::optional<Bytes> budget, const Paint& paint);

}  // namespace reprise::cli
