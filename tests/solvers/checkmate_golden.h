// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/training_graph.h"
#include "reprise/formats/json.h"
#include "tests/shared_data.h"

namespace reprise {

// ../shared/data/golden/checkmate.json: graphs and figures of Checkmate (Jain et al., MLSys'20).
class CheckmateGolden {
 public:
  CheckmateGolden() : document_(read_text(shared_data("golden/checkmate.json"))) {}

  JsonValue root() const { return document_.root(); }

  // The training graph of VGG16, VGG19, ResNet50 or test, at batch 1, costs in multiply-adds.
  Graph graph(const std::string& model) const {
    const JsonValue golden = root().at("graphs").at(model);
    const auto layers = static_cast<std::size_t>(golden.at("n_fwd").amount());
    std::vector<std::vector<ValueId>> reads(layers);
    for (const JsonValue edge : golden.at("edges").elements()) {
      std::vector<std::size_t> ends;
      for (const JsonValue end : edge.elements()) {
        ends.push_back(static_cast<std::size_t>(end.amount()));
      }
      if (ends[1] < layers) reads[ends[1]].push_back(ValueId{static_cast<std::uint32_t>(ends[0])});
    }
    std::vector<Cost> costs;
    for (const JsonValue cost : golden.at("cpu").elements()) costs.push_back(cost.cost());
    std::vector<Bytes> bytes;
    for (const JsonValue ram : golden.at("ram").elements()) bytes.push_back(ram.bytes());

    GraphBuilder build(model, CostUnit::flops);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      auto op = build.op(std::to_string(layer));
      op.cost(costs[layer]).reads(reads[layer]).makes(std::to_string(layer), bytes[layer]);
    }
    return training_graph(build.done());
  }

 private:
  JsonDocument document_;
};

}  // namespace reprise
