// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/graphs.h"

#include <fmt/core.h>

#include <cmath>
#include <map>
#include <vector>

#include "reprise/core/training_graph.h"

namespace reprise::bench {
namespace {

// What `make` gives for `ops`, made the first time it is asked for.
template <class Made, class Make>
const Made& once(std::map<std::size_t, Made>& made, std::size_t ops, Make make) {
  const auto found = made.find(ops);
  return found != made.end() ? found->second : made.emplace(ops, make()).first->second;
}

Graph make_chain(std::size_t ops) {
  constexpr std::size_t kSkip = 4;
  GraphBuilder build(fmt::format("chain of {}", ops));
  std::vector<ValueId> values{build.resident("input", Bytes{4096})};
  for (std::size_t i = 1; i <= ops; ++i) {
    std::vector<ValueId> inputs{values[i - 1]};
    if (i % kSkip == 0) inputs.push_back(values[i - kSkip]);
    const auto size = static_cast<std::int64_t>(1 + i * 7 % 13);
    auto op = build.op(fmt::format("block{}.layer{}", i / kSkip, i % kSkip));
    op.cost(Cost{size * 10}).reads(inputs);
    values.push_back(
        op.makes(fmt::format("block{}.layer{}.out", i / kSkip, i % kSkip), Bytes{size * 1024}));
  }
  return build.done();
}

}  // namespace

const Graph& chain(std::size_t ops) {
  static std::map<std::size_t, Graph> made;
  return once(made, ops, [&] { return make_chain(ops); });
}

const Graph& training_chain(std::size_t ops) {
  static std::map<std::size_t, Graph> made;
  return once(made, ops, [&] { return training_graph(chain(ops / 2)); });
}

KeptValues keep_square_root(const Graph& graph) {
  KeptValues decision{ValueSet(graph.values().size(), false), {}, {}};
  const auto stride = static_cast<std::uint32_t>(std::sqrt(graph.ops().size() / 2));
  decision.segments = IdVector<OpId, std::uint32_t>(graph.ops().size());
  for (const OpId op : graph.ops()) {
    decision.segments[op] = op.index / stride;
    if (op.index % stride != stride - 1) continue;
    for (const ValueId output : graph.outputs(op)) decision.kept[output] = true;
  }
  return decision;
}

const Plan& recomputing_plan(std::size_t ops) {
  static std::map<std::size_t, Plan> made;
  return once(made, ops, [&] {
    const Graph& graph = training_chain(ops);
    return plan_from_kept(graph, keep_square_root(graph));
  });
}

}  // namespace reprise::bench
