// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reprise/formats/lower_set_file.h"

namespace reprise {

// A command of the lower-set planner's schedule text.
struct LowerSetCommand {
  enum class Kind : std::uint8_t { forward, backward, forget_value, forget_gradient } kind;
  std::uint32_t number = 0;  // of the function (the same for its backward) or of the variable
  std::vector<std::uint32_t> positions;  // backward: of the gradients that it makes
};

// The schedule for a sequence of lower sets, by the rules of Kusumoto et al.'s program: forward
// segment by segment, keeping what a later segment reads; backward segment by segment from the
// last, each computed again first. `segments` says in which segment each function is, from 0 on,
// and no function reads from a later segment than its own.
//
// A backward function that reads an output whose segment is gone already has it computed once more,
// just before. Functions with several outputs, several sinks and functions without inputs are fine.
std::vector<LowerSetCommand> lower_set_schedule(const LowerSetFile& file,
                                                std::span<const std::uint32_t> segments);

// The same computes, each forget moved up to right behind the last compute that touches what it
// lets go of.
std::vector<LowerSetCommand> with_early_forgets(const LowerSetFile& file,
                                                std::span<const LowerSetCommand> schedule);

// What a schedule takes by the planner's own count: values and gradients of variables that are no
// sources, the sink's gradient being free.
struct LowerSetReplay {
  Bytes peak;                        // largest sum right after a compute
  Bytes peak_with_source_gradients;  // those never go
  Cost cost;                         // of all forward computes
  std::size_t forward_calls = 0;
  std::size_t backward_calls = 0;
};
LowerSetReplay replay(const LowerSetFile& file, std::span<const LowerSetCommand> schedule);

// The text: "compute 5 0 1", "forget 3 forward", "forget 3 backward", a line each. Backward
// functions are numbered after all forward ones.
std::string to_text(const LowerSetFile& file, std::span<const LowerSetCommand> schedule);

}  // namespace reprise
