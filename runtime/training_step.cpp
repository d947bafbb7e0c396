// SPDX-License-Identifier: Apache-2.0
#include "runtime/training_step.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <type_traits>

namespace reprise::runtime {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePointer = decltype(Edge::function);

// One stage of backward. Its edges: the inputs whose gradients it hands over, then the next stage.
struct StageNode : public Node {
  std::shared_ptr<BegunStep> step;
  std::size_t index = 0;

  variable_list apply(variable_list&& tangents) override {
    variable_list gradients = step->run_stage(index, std::move(tangents));
    gradients.resize(num_outputs());  // nothing flows to the next stage but its turn
    return gradients;
  }
  void release_variables() override { step->release(); }
  std::string name() const override { return "RepriseBackward"; }
};

// Nodes are counted by themselves from torch 2.12 on, by shared_ptr before.
template <class T, class Base = Node>
auto make_node() {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Base>>) {
    return std::shared_ptr<T>(new T, [](Base* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>();
  }
}

using StagePointer = decltype(make_node<StageNode>());

// The nodes, each with its edges. `like` gives the later ones the device they run on.
StagePointer make_chain(const std::shared_ptr<BegunStep>& step, const Schedule& schedule,
                        const at::Tensor& like) {
  std::vector<StagePointer> nodes;
  for (std::size_t i = 0; i < schedule.stages.size(); ++i) {
    nodes.push_back(make_node<StageNode>());
    nodes.back()->step = step;
    nodes.back()->index = i;
    if (i > 0) nodes.back()->add_input_metadata(like);
  }
  for (std::size_t i = nodes.size(); i-- > 0;) {  // a node's edges are there before it is one's end
    for (const std::int32_t input : step->inputs_of(i)) {
      nodes[i]->add_next_edge(torch::autograd::impl::gradient_edge(step->inputs()[at(input)]));
    }
    if (i + 1 < nodes.size()) nodes[i]->add_next_edge({nodes[i + 1], 0});
  }
  return nodes.front();
}

}  // namespace

void Begun::shed() const {
  if (const std::shared_ptr<BegunStep> step = step_.lock()) step->shed();
}

std::pair<std::vector<at::Tensor>, Begun> run_step(std::shared_ptr<const Prepared> prepared,
                                                   const std::vector<at::Tensor>& inputs) {
  const std::shared_ptr<const Schedule> schedule = prepared->schedule;
  const Program& program = *schedule->program;
  TORCH_CHECK(inputs.size() == program.inputs.size(), "a step of ", program.inputs.size(),
              " inputs was given ", inputs.size());
  const auto step = std::make_shared<BegunStep>(std::move(prepared), inputs);
  std::vector<at::Tensor> outputs = step->run_forward();

  at::Tensor like;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (program.differentiable[i]) like = outputs[i];
  }
  const StagePointer first = make_chain(step, *schedule, like);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (program.differentiable[i]) torch::autograd::set_history(outputs[i], first);
  }
  return {std::move(outputs), Begun(step)};
}

}  // namespace reprise::runtime
