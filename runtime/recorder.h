// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace reprise::runtime {

// Who records work on a CUDA device stands in for its generator: a state is a place in the
// recording's own sequence, which begins anew with each replay.
class Recorder {
 public:
  virtual std::string random_state() = 0;
  virtual void with_random_state(const std::string& state, const std::function<void()>& work) = 0;

 protected:
  ~Recorder() = default;
};

// While it lives, `recorder` records. Throws where another recording is under way.
class Recording {
 public:
  explicit Recording(Recorder& recorder);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

// Who records what this thread does now; null: nobody.
Recorder* recorder();

}  // namespace reprise::runtime
