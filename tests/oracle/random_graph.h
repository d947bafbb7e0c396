// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "reprise/core/graph.h"
#include "tests/oracle/random.h"

namespace reprise::oracle {

struct RandomGraphSize {
  std::size_t fewest_ops = 1;
  std::size_t most_ops = 8;
  std::size_t most_values = 12;  // made by ops
};

// A small graph in which each feature of the model is likely.
Graph random_graph(Random& random, const RandomGraphSize& size = {});

struct Feature {
  std::string_view name;
  bool (*in)(const Graph&);
};

// The features of the model that tests have to meet often enough.
extern const std::array<Feature, 9> kFeatures;

}  // namespace reprise::oracle
