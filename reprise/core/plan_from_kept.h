// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise {

// What a method that thinks in forward graphs decides: which forward values outlive the loss, and
// how the rest comes back.
struct KeptValues {
  // Values there when the backward pass begins. Added to it: values of no bytes (they only tie an
  // order) and values of ops that may not run again.
  ValueSet kept;

  // The segment of each op, or empty. The first time the backward pass misses a value of a segment,
  // all of the segment that is still going to be read is computed again, not that value alone.
  IdVector<OpId, std::uint32_t> segments;

  // How long a value that was computed again stays.
  enum class Stay : std::uint8_t { until_last_use, for_one_op } stay = Stay::until_last_use;
};

// The plan that runs every op once in program order; where the first backward op comes, lets go of
// the forward values that are not kept; computes what a later op misses again, just before it, from
// what is there, in program order; and frees at the earliest moment. Where the program has a
// forward op after a backward one, its values stay until their last use.
//
// The graph has phases. O(steps), but for_one_op may take as many steps as ops times ops:
// `keep_going`, called once an op of the program with the number of computes so far, can give up,
// and the answer is then none.
std::optional<Plan> plan_from_kept(const Graph& graph, const KeptValues& decision,
                                   const std::function<bool(OpId, std::size_t)>& keep_going);
Plan plan_from_kept(const Graph& graph, const KeptValues& decision);

}  // namespace reprise
