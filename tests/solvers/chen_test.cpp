// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/core/topology.h"
#include "reprise/solvers/checkmate/schedule.h"
#include "reprise/solvers/chen_greedy.h"
#include "reprise/solvers/chen_sqrt.h"
#include "reprise/solvers/segments.h"
#include "tests/core/graphs.h"
#include "tests/solvers/checkmate_golden.h"

namespace reprise {
namespace {

StageReplay in_checkmates_accounting(const Graph& graph, std::span<const OpId> checkpoints) {
  const OpGraph ops(graph);
  const StageMatrix stored = stored_from_checkpoints(graph, checkpoints);
  return replay(ops, {fewest_computed(ops, stored), stored});
}

struct Row {
  std::int64_t cost;
  std::int64_t bytes;
  std::size_t evaluations;
};

void expect_row(const StageReplay& found, const Row& golden) {
  EXPECT_EQ(found.cost, Cost{golden.cost});
  EXPECT_EQ(found.peak, Bytes{golden.bytes});
  EXPECT_EQ(found.evaluations, golden.evaluations);
}

struct CandidateOps {
  std::vector<OpId> any;
  std::vector<OpId> cut_points;
};

CandidateOps candidates_of(const Graph& graph) {
  const OpSet forward = forward_of_loss(graph);
  return {in_program_order(forward), articulation_points(graph, forward)};
}

// The published rows; ResNet50's with the candidates sorted.
TEST(ChenSqrt, GivesThePublishedFigures) {
  SKIP_WITHOUT_SHARED_DATA();
  const CheckmateGolden golden;
  const auto expect = [&](const char* model, const Row& cut_points, const Row& any) {
    SCOPED_TRACE(model);
    const Graph graph = golden.graph(model);
    const auto candidates = candidates_of(graph);
    expect_row(in_checkmates_accounting(graph, every_root_th(candidates.cut_points)), cut_points);
    expect_row(in_checkmates_accounting(graph, every_root_th(candidates.any)), any);
  };
  expect("VGG16", {56670781440, 59826176, 60}, {56670781440, 59826176, 60});
  expect("VGG19", {72512667648, 69447584, 71}, {72512667648, 69447584, 71});
  expect("ResNet50", {15458696192, 120020992, 511}, {28435965952, 59709440, 1166});
}

// Checkmate on unit chains: N, cost, bytes.
TEST(ChenSqrt, GivesThePublishedFiguresOnUnitChains) {
  using Golden = std::tuple<std::size_t, std::int64_t, std::int64_t>;
  for (const auto& [n, cost, bytes] : {Golden{2, 5, 4}, Golden{4, 11, 5}, Golden{8, 21, 7},
                                       Golden{16, 45, 10}, Golden{32, 89, 14}}) {
    const Graph graph = unit_chain(n);
    const StageReplay found =
        in_checkmates_accounting(graph, every_root_th(candidates_of(graph).any));
    EXPECT_EQ(found.cost, Cost{cost}) << n;
    EXPECT_EQ(found.peak, Bytes{bytes}) << n;
  }
}

TEST(ChenSqrt, TakesEveryRootThCandidate) {
  const auto indices = [](std::size_t count) {
    std::vector<OpId> candidates;
    for (std::uint32_t i = 0; i < count; ++i) candidates.push_back(OpId{i});
    std::vector<std::uint32_t> taken;
    for (const OpId op : every_root_th(candidates)) taken.push_back(op.index);
    return taken;
  };
  EXPECT_EQ(indices(0), (std::vector<std::uint32_t>{}));
  EXPECT_EQ(indices(3), (std::vector<std::uint32_t>{0, 1, 2}));     // ⌊√3⌋ = 1
  EXPECT_EQ(indices(8), (std::vector<std::uint32_t>{1, 3, 5, 7}));  // 2
  EXPECT_EQ(indices(10), (std::vector<std::uint32_t>{2, 5, 8}));    // 3
}

// Chain of 9: f2, f5 and f8 stay, six ops run again at a peak of 6 (f2, f5, two of a segment, two
// gradients). With f6 and f7 kept as well b8 takes 7: f2, f5 to f8, the loss and a gradient.
TEST(ChenSqrt, UsesTheRoomThatIsLeft) {
  const Graph graph = unit_chain(9);
  const auto run = [&](std::int64_t budget) {
    return solve(find_solver("chen-sqrt"), {graph, Budget{Bytes{budget}}}, Limits{});
  };
  EXPECT_EQ(run(5).status, Status::limit);
  EXPECT_EQ(run(6).cost, Cost{19 + 6});
  EXPECT_EQ(run(7).cost, Cost{19 + 4});
  EXPECT_EQ(run(9).cost, Cost{19 + 2});
  EXPECT_EQ(run(11).cost, Cost{19});
}

// The rows with a true topological order: of the sweep in steps of 0.05, least bytes within one
// extra forward pass.
TEST(ChenGreedy, GivesThePublishedFigures) {
  SKIP_WITHOUT_SHARED_DATA();
  const CheckmateGolden golden;
  const auto best = [](const Graph& graph, std::span<const OpId> candidates) {
    const std::vector<OpId> forward = candidates_of(graph).any;
    const Bytes scale = in_checkmates_accounting(graph, every_root_th(forward)).peak;
    Cost most = graph.base_cost();
    for (const OpId op : forward) most += graph.cost(op);
    std::optional<StageReplay> least;
    for (std::int64_t share = 0; share < 300; share += 5) {
      const StageReplay found = in_checkmates_accounting(
          graph, whenever_full(graph, forward, candidates, hundredths(scale, share)));
      if (found.cost > most) continue;
      if (!least || std::tie(found.peak, found.cost) < std::tie(least->peak, least->cost)) {
        least = found;
      }
    }
    return *least;
  };
  const auto expect = [&](const char* model, const Row& cut_points, const Row& any) {
    SCOPED_TRACE(model);
    const Graph graph = golden.graph(model);
    const auto candidates = candidates_of(graph);
    expect_row(best(graph, candidates.cut_points), cut_points);
    expect_row(best(graph, candidates.any), any);
  };
  expect("VGG16", {49272029184, 51380224, 50}, {49272029184, 51380224, 50});
  expect("VGG19", {71005863936, 51380224, 62}, {71005863936, 51380224, 62});
  expect("ResNet50", {15233556480, 55108608, 497}, {15242337280, 63422464, 502});
}

TEST(ChenGreedy, TakesACandidateOnceTheSumPassesTheThreshold) {
  const Graph graph = unit_chain(8);
  const std::vector<OpId> forward = candidates_of(graph).any;
  const std::vector<OpId> even{OpId{0}, OpId{2}, OpId{4}, OpId{6}};
  // Sums 1 2 3 at op 2, then 1 2 3 4 at op 6, where the third is no candidate.
  EXPECT_EQ(whenever_full(graph, forward, even, Bytes{2}), (std::vector<OpId>{OpId{2}, OpId{6}}));
  EXPECT_EQ(whenever_full(graph, forward, forward, Bytes{0}), forward);
  EXPECT_TRUE(whenever_full(graph, forward, forward, Bytes{8}).empty());
}

// A solver that sweeps thresholds costs no more at any budget than one threshold does.
TEST(ChenGreedy, IsNoDearerWithMoreBudget) {
  const Graph graph = unit_chain(24);
  for (const char* name : {"chen-greedy", "chen-greedy-any"}) {
    std::optional<Cost> last;
    for (std::int64_t budget = 3; budget <= 26; ++budget) {
      const Outcome outcome = solve(find_solver(name), {graph, Budget{Bytes{budget}}}, Limits{});
      if (!outcome.plan) {
        EXPECT_FALSE(last);
        continue;
      }
      if (last) {
        EXPECT_LE(outcome.cost, *last) << name << " " << budget;
      }
      last = outcome.cost;
    }
    EXPECT_EQ(last, Cost{49});
  }
}

}  // namespace
}  // namespace reprise
