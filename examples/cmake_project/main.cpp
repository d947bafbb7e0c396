// SPDX-License-Identifier: Apache-2.0
//
// Describes a small GPT, adds its backward pass, and plans its training step in half the memory.
// With a file name as argument it writes the training graph there: examples/transformer.json is
// made so.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "reprise/core/simulator.h"
#include "reprise/core/training_graph.h"
#include "reprise/formats/files.h"
#include "reprise/formats/graph_json.h"
#include "reprise/solvers/solver.h"

namespace {

using namespace reprise;

// As large as GPT-2 small, but it reads bytes, not words.
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kLayers = 12;
constexpr std::int64_t kVocabulary = 256;
constexpr std::int64_t kRows = kBatch * kTokens;

Bytes floats(std::int64_t count) { return Bytes{4 * count}; }

class Transformer {
 public:
  Graph forward() {
    const ValueId tokens = build_.resident("tokens", Bytes{8 * kRows});
    const ValueId table = build_.resident("embedding.weight", floats(kVocabulary * kWidth));
    ValueId x = elementwise("embedding", {tokens, table}, kWidth);
    for (std::int64_t i = 0; i < kLayers; ++i) x = layer("layer" + std::to_string(i) + ".", x);
    const ValueId normed = elementwise("norm", {x}, kWidth);
    const ValueId logits = build_.op("logits")
                               .kind("matmul")
                               .cost(Cost{2 * kRows * kWidth * kVocabulary})
                               .reads({normed, table})
                               .makes("logits", floats(kRows * kVocabulary));
    build_.op("cross_entropy")
        .kind("loss")
        .cost(Cost{5 * kRows * kVocabulary})
        .reads({logits})
        .makes("cross_entropy", floats(kRows));
    return build_.done();
  }

 private:
  ValueId layer(const std::string& name, ValueId x) {
    const ValueId normed = elementwise(name + "norm1", {x}, kWidth);
    const ValueId qkv = linear(name + "qkv", normed, kWidth, 3 * kWidth);
    const ValueId mixed = attention(name + "attention", qkv);
    const ValueId projected = linear(name + "projection", mixed, kWidth, kWidth);
    const ValueId middle = elementwise(name + "add1", {x, projected}, kWidth);
    const ValueId normed_again = elementwise(name + "norm2", {middle}, kWidth);
    const ValueId up = linear(name + "up", normed_again, kWidth, 4 * kWidth);
    const ValueId activated = elementwise(name + "gelu", {up}, 4 * kWidth);
    const ValueId down = linear(name + "down", activated, 4 * kWidth, kWidth);
    return elementwise(name + "add2", {middle, down}, kWidth);
  }

  ValueId elementwise(const std::string& name, std::initializer_list<ValueId> reads,
                      std::int64_t width) {
    auto op = build_.op(name);
    op.kind("elementwise").cost(Cost{kRows * width}).reads(reads);
    return op.makes(name, floats(kRows * width));
  }

  ValueId linear(const std::string& name, ValueId x, std::int64_t from, std::int64_t to) {
    const ValueId weight = build_.resident(name + ".weight", floats(from * to));
    auto op = build_.op(name);
    op.kind("matmul").cost(Cost{2 * kRows * from * to}).reads({x, weight});
    return op.makes(name, floats(kRows * to));
  }

  // Scores, softmax and the weighted sum in one op; the scores are its workspace.
  ValueId attention(const std::string& name, ValueId qkv) {
    auto op = build_.op(name);
    op.kind("attention").cost(Cost{4 * kRows * kTokens * kWidth});
    op.workspace(floats(kBatch * kHeads * kTokens * kTokens)).reads({qkv});
    return op.makes(name, floats(kRows * kWidth));
  }

  GraphBuilder build_{"transformer", CostUnit::flops};
};

}  // namespace

int main(int argc, char** argv) {
  const Graph graph = training_graph(Transformer().forward());
  if (argc > 1) write_text(argv[1], write_graph_json(graph));

  const Bytes plain = base_peak(graph);
  const Problem problem{graph, Budget{Bytes{plain.count() / 2}}};
  Limits limits;
  limits.time = std::chrono::seconds(2);
  const Outcome outcome = solve(find_solver("auto"), problem, limits);
  if (!outcome.plan) {
    std::puts("no plan fits half the memory");
    return 1;
  }
  std::printf("plain:      %.2f GB\n", static_cast<double>(plain.count()) / 1e9);
  std::printf("plan:       %.2f GB, %.1f %% more work\n",
              static_cast<double>(outcome.peak.count()) / 1e9,
              100.0 * static_cast<double>((outcome.cost - graph.base_cost()).count()) /
                  static_cast<double>(graph.base_cost().count()));
  return 0;
}
