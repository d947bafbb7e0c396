// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

#include "runtime/program.h"
#include "runtime/random_state.h"
#include "runtime/schedule.h"
#include "runtime/step_meter.h"

namespace reprise::runtime {

// The tensors of one training step while it runs.
struct Frame {
  explicit Frame(const Program& program);

  std::vector<at::Tensor> slots;
  std::vector<Draw> random;  // by call: of its first run
  torch::jit::Stack stack;   // of the call that runs
};

// Keeps autograd, autocast and in-place tracking out while calls run, with grad mode on: some
// kernels (oneDNN's LSTM) leave out what backward needs without it.
struct BelowAutograd {
  c10::AutoGradMode grad_mode{true};
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// Runs instructions [begin, end) of a schedule by boxed dispatch: no Python, no autograd. What a
// call throws is thrown on with the op and its line in the user's model. `kept`, where there is
// one, is a frame that has to stay as it is: what is shared with it is not written over. With
// `repeated` all this ran before: inputs of the step are not changed a second time, but for
// remembered ones, in whose slots are copies.
void run(const Schedule& schedule, std::size_t begin, std::size_t end, Frame& frame,
         const Frame* kept, InstructionPeaks* peaks, bool repeated = false);

// One call, with its tensors in `frame`.
void run_call(const Program& program, const Instruction& instruction, Frame& frame);

}  // namespace reprise::runtime
