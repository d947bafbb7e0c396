// SPDX-License-Identifier: Apache-2.0
#pragma once

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
