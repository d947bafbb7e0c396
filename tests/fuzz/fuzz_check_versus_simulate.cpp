// SPDX-License-Identifier: Apache-2.0
// Makes a small graph and a plan for it, right or nearly so, out of any bytes, and holds `check`
// against `simulate`.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "tests/fuzz/properties.h"

using namespace reprise;

namespace {

// Spends the input on choices, a byte each; when it is spent every choice is 0.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  std::uint32_t below(std::size_t count) {
    if (rest_.empty()) return 0;
    const std::uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return static_cast<std::uint32_t>(byte % count);
  }
  bool one_in(std::size_t count) { return below(count) == count - 1; }
  bool spent() const { return rest_.empty(); }

 private:
  std::span<const std::uint8_t> rest_;
};

// Up to 8 ops with up to 3 inputs and 3 outputs each, and every feature of the model.
Graph make_graph(Choices& choose) {
  constexpr std::size_t kSizes = 4;  // few, so that one value can often overwrite another
  GraphBuilder build("random");
  std::vector<ValueId> values;
  std::vector<Bytes> sizes;
  const std::size_t residents = choose.below(3);
  for (std::size_t i = 0; i < residents; ++i) {
    sizes.push_back(Bytes{choose.below(kSizes)});
    values.push_back(build.resident("r" + std::to_string(i), sizes.back()));
    if (choose.one_in(4)) build.keep(values.back());
  }
  const std::size_t ops = choose.below(9);
  for (std::size_t i = 0; i < ops; ++i) {
    auto op = build.op("op" + std::to_string(i));
    op.cost(Cost{choose.below(5)}).workspace(Bytes{choose.below(3)});
    if (choose.one_in(4)) op.never_again();
    std::vector<ValueId> inputs;
    for (std::size_t left = values.empty() ? 0 : choose.below(4); left > 0; --left) {
      inputs.push_back(values[choose.below(values.size())]);
    }
    op.reads(inputs);
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    for (std::size_t left = choose.below(4); left > 0; --left) {
      const Bytes bytes{choose.below(kSizes)};
      auto made = op.makes("v" + std::to_string(values.size()), bytes);
      if (choose.one_in(4)) made.kept();
      for (auto input = inputs.begin(); choose.one_in(2) && input != inputs.end(); ++input) {
        if (input->index < residents || sizes[input->index] != bytes) continue;
        made.over(*input);
        inputs.erase(input);
        break;
      }
      values.push_back(made);
      sizes.push_back(bytes);
    }
  }
  return build.done();
}

// Program order, with ops run again in between.
std::vector<OpId> make_order(const Graph& graph, Choices& choose) {
  std::vector<OpId> order;
  for (const OpId op : graph.ops()) {
    order.push_back(op);
    while (choose.one_in(3)) {
      const OpId again{choose.below(op.index + 1)};
      if (graph.recomputable(again) || choose.one_in(8)) order.push_back(again);
    }
  }
  return order;
}

// Any step, or one that names what is not in the graph.
Step make_step(const Graph& graph, Choices& choose) {
  if (choose.one_in(2)) return Step::free(ValueId{choose.below(graph.values().size() + 1)});
  return Step::compute(OpId{choose.below(graph.ops().size() + 1)});
}

void change_a_step(std::vector<Step>& steps, const Graph& graph, Choices& choose) {
  const auto place = steps.begin() + choose.below(steps.size() + 1);
  if (place == steps.end()) {
    steps.push_back(make_step(graph, choose));
    return;
  }
  switch (choose.below(5)) {
    case 0: steps.erase(place); break;
    case 1: steps.insert(place, *place); break;
    case 2: *place = make_step(graph, choose); break;
    case 3: std::swap(*place, steps[choose.below(steps.size())]); break;
    default: steps.insert(place, make_step(graph, choose));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choose({data, size});
  const Graph graph = make_graph(choose);
  fuzz::require_right_base_run(graph);

  Plan plan = with_earliest_frees(graph, make_order(graph, choose));
  fuzz::require_agreement(graph, plan);
  for (int changes = 0; changes < 4 && !choose.spent(); ++changes) {
    change_a_step(plan.steps, graph, choose);
    fuzz::require_agreement(graph, plan);
  }
  return 0;
}
