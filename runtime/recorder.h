// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace reprise::runtime {

// Who records work on a CUDA device, for as long as that goes on.
class Recorder {
 public:
  // In place of the device's generator: its state is a place in the recording's own sequence, which
  // begins anew with each replay.
  virtual std::string random_state() = 0;
  virtual void with_random_state(const std::string& state, const std::function<void()>& work) = 0;

  // After each call: nothing of it is to hold memory but its results.
  virtual void end_call() = 0;

 protected:
  ~Recorder() = default;
};

// Null: nothing is recorded. One recording at a time.
Recorder* recorder();
void set_recorder(Recorder* recorder);

}  // namespace reprise::runtime
