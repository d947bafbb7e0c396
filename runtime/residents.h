// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/program.h"
#include "runtime/schedule.h"

namespace reprise::runtime {

using Position = std::ptrdiff_t;  // of a step of the plan, or of an instruction
inline constexpr Position kNever = -1;

// Which instructions touch residents: inputs, constants and views of them.
struct ResidentUses {
  explicit ResidentUses(const Schedule& schedule);

  std::vector<Position> last;  // by slot: the last instruction that touches it; past all: none
  std::vector<bool> read_by_forward;  // by slot of an input: are its bytes, or a view of them?
  std::vector<bool> read_by_backward;

 private:
  void note(const Program& program, const Call& call, Position i, bool forward);
};

// Notes in the schedule which inputs forward and backward read: of those that backward changes, it
// may read what others have made of them.
void note_inputs(Schedule& schedule, const ResidentUses& uses);

// Inputs and views of them are cleared after their last use, so that a step holds no activation of
// the caller's longer than plain training does. Outputs are still to be handed out after forward.
void clear_residents(Schedule& schedule, const std::vector<Position>& last);

// Inputs that calls of forward change for good.
std::vector<std::int32_t> changed_inputs(const Schedule& schedule);

// Those of them whose changes eager counts: running statistics are not among them.
std::vector<std::int32_t> counted_inputs(const Schedule& schedule);

// Inputs that calls of backward change, as in checkpointed regions that run again.
std::vector<std::int32_t> changed_by_backward(const Schedule& schedule);

// The inputs and constants that a call writes to, for good or only when it runs first.
std::vector<SlotId> written_by(const Program& program, const Call& call);

// The slot that a call derives others of.
SlotId viewed_by(const Call& view);

// The input or constant that a resident slot is a view of, or the slot itself.
SlotId source_of(const Program& program, SlotId slot);

}  // namespace reprise::runtime
