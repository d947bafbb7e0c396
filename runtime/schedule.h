// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/program.h"

namespace reprise::runtime {

// What an executor does, step by step.
struct Instruction {
  enum class Kind : std::uint8_t { call, take, copy, clear, stash, unstash };
  Kind kind;
  bool save_random = false;    // keep the generator's state: the call runs again later
  bool replay_random = false;  // run with the state of the first run
  bool again = false;          // not its first run
  bool at_once = false;        // both halves of the call: see halves.h
  std::int32_t parts = 1;      // in which the call runs: see parts.h
  CallId call = kNone;         // of a call
  SlotId slot = kNone;         // of all others
  SlotId target = kNone;       // of take and copy: what begins as `slot`
  std::int32_t step = kNone;   // of the plan, that it is part of
};

// A part of backward after which some gradients are final.
struct Stage {
  std::size_t begin = 0;             // its first instruction
  std::size_t end = 0;               // one past its last instruction
  std::vector<std::int32_t> inputs;  // whose gradients it hands over
  std::vector<SlotId> cleared;       // once they are handed over
};

// A plan in terms of a program.
struct Schedule {
  std::shared_ptr<const Program> program;
  std::vector<Instruction> instructions;
  std::size_t forward_end = 0;
  std::vector<Stage> stages;
  std::vector<c10::Device> random;             // on whose generators the program draws
  std::vector<std::int32_t> read_by_forward;   // inputs: they may not change before it runs again
  std::vector<std::int32_t> read_by_backward;  // inputs: they may not change before it
  std::vector<SlotId> guarded_outputs;         // … and nor may these, which it reads too
  std::vector<SlotId> unneeded;                // outputs that nothing reads after forward
  bool gives_back = false;                     // workspaces, after each call: see cuda_graph.h
};

// How calls run other than as usual.
struct Ways {
  std::map<CallId, std::int32_t> parts;  // in so many: see parts.h
  std::vector<CallId> renewed;           // by their renewals after their first run, and within one
                                         // in parts, which leaves its first result to them
  std::vector<CallId> at_once;           // in halves, where not in parts: see halves.h
  bool gives_back = false;               // workspaces, after each: in a recording all do
};

// Works out a plan, whose steps are an op to compute or ~value to free: which views it needs when,
// what it writes in place, what is stashed because an op makes it a second time. Throws
// std::invalid_argument where the plan is not right for the program.
Schedule make_schedule(std::shared_ptr<const Program> program, std::span<const std::int32_t> steps,
                       const Ways& ways = {});

// How often, in instructions [begin, end), random calls that run again go back to an earlier place.
std::size_t random_turns(const Schedule& schedule, std::size_t begin, std::size_t end);

}  // namespace reprise::runtime
