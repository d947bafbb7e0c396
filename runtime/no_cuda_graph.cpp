// SPDX-License-Identifier: Apache-2.0
// In place of cuda_graph.cpp where PyTorch has no CUDA.
#include <stdexcept>

#include "runtime/cuda_graph.h"

namespace reprise::runtime {

struct GraphPool::Memory {};
struct CudaGraph::Recorded {};

GraphPool::GraphPool(c10::Device device) : device_(device) {
  throw std::runtime_error("CUDA graphs want a PyTorch that is built with CUDA");
}

GraphPool::~GraphPool() = default;

std::pair<std::uint64_t, std::uint64_t> GraphPool::id() const { return {}; }

void GraphPool::enter() {}
void GraphPool::leave() {}

void give_back_workspaces() {}

bool is_recording() { return false; }

RandomPlace random_place(c10::Device) { return {}; }

CudaGraph::CudaGraph(std::shared_ptr<GraphPool>, std::size_t) {}
CudaGraph::~CudaGraph() = default;

void CudaGraph::record(const std::function<void()>&) {}
void CudaGraph::replay(const RandomPlace&) {}
void CudaGraph::replay() {}

}  // namespace reprise::runtime
