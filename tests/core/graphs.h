// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise {

// Checkmate's unit chain (Jain et al., MLSys'20): n forward ops, a loss, n backward ops, each of
// cost 1 and 1 byte; backward op i reads forward value i and the gradient before it.
inline Graph unit_chain(std::size_t n) {
  GraphBuilder build("chain");
  std::vector<ValueId> forward;
  ValueId last{};
  for (std::size_t i = 0; i < n; ++i) {
    const std::string name = "f" + std::to_string(i);
    auto op = build.op(name);
    op.cost(Cost{1}).phase(Phase::forward);
    if (i > 0) op.reads({last});
    last = op.makes(name, Bytes{1});
    forward.push_back(last);
  }
  last = build.op("loss").cost(Cost{1}).phase(Phase::loss).reads({last}).makes("loss", Bytes{1});
  for (std::size_t i = n; i-- > 0;) {
    const std::string name = "b" + std::to_string(i);
    auto op = build.op(name);
    op.cost(Cost{1}).phase(Phase::backward).gradient_of(OpId{static_cast<std::uint32_t>(i)});
    last = op.reads({forward[i], last}).makes(name, Bytes{1});
  }
  return build.done();
}

// Blocks x → a → b → add, where add also reads x: only x and add part the graph. A loss, and a
// backward op for each forward op, which reads its value and the gradient before it.
inline Graph residual_net(int blocks) {
  GraphBuilder build("residual");
  ValueId x = build.op("stem").cost(Cost{1}).phase(Phase::forward).makes("stem", Bytes{1});
  std::vector<ValueId> reads{x};
  for (int i = 0; i < blocks; ++i) {
    const std::string name = std::to_string(i);
    const auto op = [&](const std::string& kind, std::initializer_list<ValueId> inputs) {
      auto made = build.op(kind + name);
      made.cost(Cost{1}).phase(Phase::forward).reads(inputs);
      const ValueId value = made.makes(kind + name, Bytes{1});
      reads.push_back(value);
      return value;
    };
    const ValueId a = op("a", {x});
    const ValueId b = op("b", {a});
    x = op("add", {x, b});
  }
  ValueId gradient =
      build.op("loss").cost(Cost{1}).phase(Phase::loss).reads({x}).makes("loss", Bytes{1});
  for (std::size_t i = reads.size(); i-- > 0;) {
    const std::string name = "g" + std::to_string(i);
    auto op = build.op(name);
    op.cost(Cost{1}).phase(Phase::backward).reads({reads[i], gradient});
    gradient = op.makes(name, Bytes{1});
  }
  return build.done();
}

// "f0 f1 -f0": computes by op, frees with a minus.
inline std::string words(const Graph& graph, const Plan& plan) {
  std::string text;
  for (const Step step : plan.steps) {
    if (!text.empty()) text += ' ';
    text +=
        step.kind() == StepKind::compute ? graph.name(step.op()) : "-" + graph.name(step.value());
  }
  return text;
}

}  // namespace reprise
