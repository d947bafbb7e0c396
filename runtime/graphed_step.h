// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/cuda_graph.h"
#include "runtime/executor.h"
#include "runtime/graph_memory.h"
#include "runtime/look.h"
#include "runtime/schedule.h"
#include "runtime/step_meter.h"

namespace reprise::runtime {

// A schedule as CUDA graphs. Forward is one. Backward is one where each gradient stays to its end
// or is added to the one that is there already, as autograd would; else one a stage, whose
// gradients are handed over after it.
class GraphedStep {
 public:
  // copies, by input: where it is copied to before each step; none: it is read where it lies.
  // stays, by input: does its gradient stay to the end of backward? expected: what backward is
  // handed. may_add: gradients may be added within the graph; most_waiting: bytes of small ones
  // that wait for each other. Throws where the schedule can't be graphs.
  GraphedStep(std::shared_ptr<GraphMemory> memory, std::shared_ptr<const Schedule> schedule,
              std::vector<std::optional<at::Tensor>> copies, std::vector<bool> stays,
              std::vector<Tangent> expected, bool may_add, std::size_t most_waiting);

  // Once, before all else: what the steps launch, on these inputs. Nothing of it runs. Returns what
  // it takes of memory, by instruction too. Throws where it can't be recorded.
  Taken record(const std::vector<at::Tensor>& inputs);

  // Once, after all else: lets go of the graphs and of their memory, whoever still holds this.
  // False: a step runs there, and nothing is done.
  bool end();

  GraphMemory& memory() const { return *memory_; }
  // Does an input lie elsewhere than where the graphs read it?
  bool has_moved(const std::vector<at::Tensor>& inputs) const;
  // Are the gradients there that those of the step are added to within the graph?
  bool are_at_their_sums(const std::vector<at::Tensor>& inputs) const;

  // Of the step that has begun in the memory. Returns the outputs, undefined where there is none.
  std::vector<at::Tensor> run_forward(const std::vector<at::Tensor>& inputs);

  // Takes what backward is handed. Throws where the graphs would not do what autograd does now.
  void begin_backward(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& tangents);
  void run_stage(std::size_t index);
  std::vector<at::Tensor> gradients(const std::vector<std::int32_t>& inputs);

 private:
  // A tensor in the pool's memory, which is not held.
  struct Place {
    bool is_tensor = false;
    void* data = nullptr;  // of its storage
    std::size_t bytes = 0;
    Look look;
    bool operator==(const Place& other) const {
      return is_tensor == other.is_tensor && data == other.data && look == other.look;
    }
  };
  using Lent = std::map<void*, c10::Storage>;

  // A recording in the making.
  struct Draft {
    const std::vector<at::Tensor>& inputs;
    InstructionPeaks* peaks;
    std::optional<Frame> frame{};
    std::vector<at::Tensor> held{};                           // what callers will hold in its place
    std::vector<at::Tensor> small_sums{}, small_gradients{};  // to be added together
    std::size_t small_bytes = 0;
  };

  void record_forward(Draft& draft);
  void make_tangents(Draft& draft);
  void record_backward(Draft& draft);
  std::unique_ptr<CudaGraph> record_stages(std::size_t begin, std::size_t end, Draft& draft);
  void leave_stage(const Stage& stage, Draft& draft);
  void add_to_sum(const at::Tensor& gradient, std::int32_t input, Draft& draft);
  static void add_small(Draft& draft);
  bool can_add(const std::vector<at::Tensor>& inputs) const;
  bool is_handed_over(std::size_t input) const;  // its gradient, as soon as it is final
  static Place place_of(const at::Tensor& tensor);
  at::Tensor lend(const Place& place, bool stays, Lent& storages);

  std::shared_ptr<GraphMemory> memory_;
  std::shared_ptr<const Schedule> schedule_;
  std::vector<std::optional<at::Tensor>> copies_;
  std::vector<bool> stays_;
  std::vector<Tangent> expected_;
  std::vector<std::int32_t> counted_;  // inputs whose changes by forward eager counts
  bool may_add_;
  std::size_t most_waiting_;
  bool is_one_backward_ = false;

  std::unique_ptr<CudaGraph> forward_;
  std::vector<std::unique_ptr<CudaGraph>> backward_;
  std::vector<void*> read_at_;  // by input
  std::vector<Place> outputs_, tangents_;
  std::map<std::int32_t, Place> gradients_;  // by input
  std::map<std::int32_t, Place> sums_;       // by input: where its gradient is added to
  RandomPlace began_;                        // when the last forward did
};

}  // namespace reprise::runtime
