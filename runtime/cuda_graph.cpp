// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda_graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/recorder.h"

namespace at::cuda {
// As in ATen/cuda/CUDAContextLight.h, which wants all of CUDA's libraries to be there.
TORCH_CUDA_CPP_API void clearCublasWorkspaces();
}  // namespace at::cuda

namespace reprise::runtime {
namespace {

at::CUDAGeneratorImpl& as_cuda(const at::Generator& generator) {
  return *generator.get<at::CUDAGeneratorImpl>();
}

// How far a generator has come in the graph that is recorded.
std::uint64_t offset_in_graph(const at::Generator& generator) {
  return as_cuda(generator).philox_cuda_state(0).offset_intragraph_;
}

std::string as_bytes(std::uint64_t offset) {
  return {reinterpret_cast<const char*>(&offset), sizeof(offset)};
}

std::uint64_t from_bytes(const std::string& bytes) {
  std::uint64_t offset = 0;
  std::memcpy(&offset, bytes.data(), sizeof(offset));
  return offset;
}

// While it lives, new memory of the allocator's is in segments that grow: blocks in them are as
// large as they were asked to be, and what is free in between is one with its neighbours.
class GrowingSegments {
 public:
  GrowingSegments() : before_(c10::CachingAllocator::getAllocatorSettings()) {
    if (!is_native()) return;
    grew_ = c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
    set(true);
  }
  ~GrowingSegments() {
    if (is_native()) set(grew_);
  }
  GrowingSegments(const GrowingSegments&) = delete;
  GrowingSegments& operator=(const GrowingSegments&) = delete;

 private:
  static constexpr const char* kKey = "expandable_segments:";

  bool is_native() const { return before_.find("cudaMallocAsync") == std::string::npos; }

  void set(bool grow) const {
    std::string settings = before_;
    if (const auto begin = settings.find(kKey); begin != std::string::npos) {
      const auto end = settings.find(',', begin);
      settings.erase(begin, end == std::string::npos ? end : end + 1 - begin);
    }
    if (!settings.empty() && settings.back() != ',') settings += ',';
    c10::CachingAllocator::setAllocatorSettings(settings + kKey + (grow ? "True" : "False"));
  }

  std::string before_;
  bool grew_ = false;
};

// With generators beside the default one for random calls that run again: in a graph a generator
// only moves on, so one is taken for each turn back.
class GraphRecorder final : public Recorder {
 public:
  GraphRecorder(c10::Device device, std::size_t turns)
      : default_(at::cuda::detail::getDefaultCUDAGenerator(device.index())) {
    for (std::size_t i = 0; i < turns; ++i) {
      generators_.push_back(at::cuda::detail::createCUDAGenerator(device.index()));
    }
  }

  void register_with(at::cuda::CUDAGraph& graph) const {
    for (const at::Generator& generator : generators_) graph.register_generator_state(generator);
  }

  void begin_at(const RandomPlace& place) {
    for (at::Generator& generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_current_seed(place.seed);
      generator.set_offset(place.offset);
    }
  }

  std::string random_state() override {
    const std::lock_guard lock(default_.mutex());
    return as_bytes(offset_in_graph(default_));
  }

  void with_random_state(const std::string& state, const std::function<void()>& work) override {
    const std::uint64_t offset = from_bytes(state);
    if (turn_ < 0 || offset < offset_in_graph(current())) ++turn_;
    if (turn_ >= static_cast<std::ptrdiff_t>(generators_.size())) {
      throw std::logic_error("random calls turn back more often than was counted");
    }
    as_cuda(current()).philox_cuda_state(offset - offset_in_graph(current()));
    const at::Generator own = default_.graphsafe_get_state();
    default_.graphsafe_set_state(current());
    try {
      work();
    } catch (...) {
      default_.graphsafe_set_state(own);
      throw;
    }
    default_.graphsafe_set_state(own);
  }

 private:
  at::Generator& current() { return generators_[static_cast<std::size_t>(turn_)]; }

  at::Generator default_;
  std::vector<at::Generator> generators_;
  std::ptrdiff_t turn_ = -1;
};

// A graph whose recording can be broken off. What PyTorch leaves to be done then is done here: its
// allocators and generators would believe for ever that a recording is under way.
class Graph : public at::cuda::CUDAGraph {
 public:
  void break_off() {
    if (capture_ended_) return;  // it could not be made fit for replays
    try {
      capture_end();
    } catch (const c10::Error&) {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
      c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_);
      at::HostAllocator* host = at::getHostAllocator(at::kCUDA);
      host->end_allocate_to_pool(mempool_id_);
      host->release_pool(mempool_id_);
      for (auto& [state, increment] : captured_generator_states_) stop(*state);
    }
  }

 private:
  template <class State>
  static void stop(State& state) {
    if constexpr (requires { state.capturing_; }) state.capturing_ = false;  // before torch 2.12
  }
};

}  // namespace

struct GraphPool::Memory {
  explicit Memory(c10::Device device)
      : id(at::cuda::graph_pool_handle()),
        stream(c10::cuda::getStreamFromPool(false, device.index())),
        touched(at::zeros({1}, at::TensorOptions().device(device))) {
    const c10::cuda::CUDAStreamGuard on(stream);
    c10::cuda::device_synchronize();
    anchor.capture_begin(id, cudaStreamCaptureModeThreadLocal);
    touched.zero_();
    anchor.capture_end();
  }

  c10::MempoolId_t id;
  c10::cuda::CUDAStream stream;  // memory is kept by stream: all record on this one
  c10::Event last{c10::kCUDA};   // work in the pool is done
  at::Tensor touched;            // what the anchor writes: a graph that does nothing is none
  at::cuda::CUDAGraph anchor;    // a pool ends with its last graph: this one outlives the others
};

GraphPool::GraphPool(c10::Device device) : device_(device) {
  const c10::cuda::CUDAGuard on(device_);
  memory_ = std::make_unique<Memory>(device_);
}

GraphPool::~GraphPool() {
  try {
    const c10::cuda::CUDAGuard on(device_);
    c10::cuda::device_synchronize();  // the last replay may still run
  } catch (const c10::Error&) {       // it has gone wrong: whoever looks next is told
  }
}

std::pair<std::uint64_t, std::uint64_t> GraphPool::id() const { return memory_->id; }

void GraphPool::enter() {
  memory_->last.block(c10::cuda::getCurrentCUDAStream(device_.index()).unwrap());
}

void GraphPool::leave() {
  memory_->last.record(c10::cuda::getCurrentCUDAStream(device_.index()).unwrap());
}

void give_back_workspaces() { at::cuda::clearCublasWorkspaces(); }

bool is_recording() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

RandomPlace random_place(c10::Device device) {
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device.index());
  const std::lock_guard lock(generator.mutex());
  return {generator.current_seed(), generator.get_offset()};
}

struct CudaGraph::Recorded {
  Recorded(std::shared_ptr<GraphPool> given, std::size_t turns)
      : pool(std::move(given)), recorder(pool->device(), turns) {}

  std::shared_ptr<GraphPool> pool;
  GraphRecorder recorder;
  Graph graph;
};

CudaGraph::CudaGraph(std::shared_ptr<GraphPool> pool, std::size_t turns)
    : recorded_(std::make_unique<Recorded>(std::move(pool), turns)) {}

CudaGraph::~CudaGraph() = default;

void CudaGraph::record(const std::function<void()>& work) {
  const GraphPool& pool = *recorded_->pool;
  Graph& graph = recorded_->graph;
  const c10::cuda::CUDAStreamGuard on(pool.memory_->stream);
  const GrowingSegments growing;
  recorded_->recorder.register_with(graph);
  c10::cuda::device_synchronize();
  give_back_workspaces();  // a graph's own lie in its pool
  graph.capture_begin(pool.memory_->id, cudaStreamCaptureModeThreadLocal);
  try {
    const Recording recording(recorded_->recorder);
    work();
    graph.capture_end();
  } catch (...) {
    graph.break_off();
    give_back_workspaces();
    throw;
  }
}

void CudaGraph::replay() { replay(random_place(recorded_->pool->device())); }

void CudaGraph::replay(const RandomPlace& began) {
  GraphPool& pool = *recorded_->pool;
  recorded_->recorder.begin_at(began);
  pool.enter();
  recorded_->graph.replay();
  pool.leave();
}

}  // namespace reprise::runtime
