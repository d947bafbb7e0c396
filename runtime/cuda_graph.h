// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace reprise::runtime {

// Memory of a CUDA device for graphs alone. All graphs of a pool share it: they run in turn, and
// what one leaves there is the next one's to write over.
//
// Throws std::runtime_error where this build has no CUDA.
class GraphPool {
 public:
  explicit GraphPool(c10::Device device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  c10::Device device() const { return device_; }

  // Work in the pool's memory may be on any stream: enter() makes the current one wait for the last
  // work there, leave() marks the end of this one.
  void enter();
  void leave();
  std::pair<std::uint64_t, std::uint64_t> id() const;  // as torch.cuda.memory_snapshot names it

 private:
  friend class CudaGraph;
  struct Memory;
  c10::Device device_;
  std::unique_ptr<Memory> memory_;
};

// Lets go of what cuBLAS keeps from one call to the next: graphs have none of it, as plans count
// it.
void give_back_workspaces();

// Is work on the current stream recorded, by whomever, and not run?
bool is_recording();

// Where a device's default generator is: random numbers follow from it.
struct RandomPlace {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};
RandomPlace random_place(c10::Device device);

// Work on a device, recorded once and run as a whole from then on.
class CudaGraph {
 public:
  // `turns`: how often the work goes back to random numbers of before.
  CudaGraph(std::shared_ptr<GraphPool> pool, std::size_t turns);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Records what `work` launches; nothing of it runs. What it throws is thrown on, and the graph is
  // not one.
  void record(const std::function<void()>& work);

  // On the current stream, after what ran in the pool before. Calls that run again draw as they did
  // in a replay that began at `began`.
  void replay(const RandomPlace& began);
  void replay();  // … as they do in this one

 private:
  struct Recorded;
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace reprise::runtime
