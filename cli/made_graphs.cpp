// SPDX-License-Identifier: Apache-2.0
#include "cli/made_graphs.h"

#include <fmt/core.h>

#include <array>
#include <vector>

#include "reprise/core/training_graph.h"
#include "reprise/solvers/dice.h"

namespace reprise::cli {

Graph residual_graph() {
  constexpr std::array kBlocks{3, 4, 6, 3};
  GraphBuilder build("residual", CostUnit::flops);
  struct Image {
    ValueId value;
    std::int64_t channels;
  };
  // A convolution of `window` × `window` to `channels` channels of `side` × `side` floats.
  const auto convolve = [&](const std::string& name, Image from, std::int64_t channels,
                            std::int64_t side, std::int64_t window) {
    const std::int64_t pixels = side * side;
    auto op = build.op(name);
    op.cost(Cost{2 * pixels * channels * from.channels * window * window}).reads({from.value});
    return Image{op.makes(name, Bytes{4 * pixels * channels}), channels};
  };

  const ValueId input = build.resident("image", Bytes{602'112});  // 224 × 224 × 3 floats
  Image image = convolve("stem", {input, 3}, 64, 56, 7);
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    const std::int64_t side = 56 >> stage;
    const std::int64_t channels = 64 << stage;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = fmt::format("stage{}.block{}.", stage, block);
      const Image before =
          block == 0 ? convolve(name + "shortcut", image, 4 * channels, side, 1) : image;
      image = convolve(name + "reduce", image, channels, side, 1);
      image = convolve(name + "middle", image, channels, side, 3);
      image = convolve(name + "expand", image, 4 * channels, side, 1);
      auto add = build.op(name + "add");
      add.cost(Cost{side * side * image.channels}).reads({before.value, image.value});
      image.value = add.makes(name + "add", Bytes{4 * side * side * image.channels});
    }
  }
  return training_graph(build.done());
}

Graph layered_graph() {
  constexpr std::size_t kLayers = 20;
  constexpr std::size_t kWidth = 5;
  Dice dice(1);
  GraphBuilder build("layered");
  std::vector<ValueId> values;
  for (std::size_t i = 0; i < kLayers * kWidth; ++i) {
    const std::size_t layer = i / kWidth;
    std::vector<ValueId> inputs;
    if (layer > 0) {
      inputs.push_back(values[(layer - 1) * kWidth + dice.below(kWidth)]);
      inputs.push_back(values[dice.below(layer * kWidth)]);
    }
    auto op = build.op(fmt::format("layer{}.op{}", layer, i % kWidth));
    op.cost(Cost{1 + dice.below(100)}).reads(inputs);
    values.push_back(
        op.makes(fmt::format("layer{}.value{}", layer, i % kWidth), Bytes{1 + dice.below(4096)}));
  }
  return build.done();
}

}  // namespace reprise::cli
