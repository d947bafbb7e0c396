// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/ogc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "reprise/core/checker.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random.h"
#include "tests/oracle/random_graph.h"

namespace reprise {
namespace {

using Segments = OgcSearch::Segments;

OgcAnswer least(const TwoTerminalGraph& graph, Segments segments) {
  return OgcSearch(graph, segments, [] { return true; }).least_total([](std::size_t) {
    return true;
  });
}

TwoTerminalGraph chain(std::initializer_list<std::int64_t> inside) {
  TwoTerminalGraph graph;
  graph.bytes.push_back(Bytes{0});
  for (const std::int64_t bytes : inside) graph.bytes.push_back(Bytes{bytes});
  graph.bytes.push_back(Bytes{0});
  for (std::uint32_t i = 0; i + 1 < graph.bytes.size(); ++i) graph.edges.push_back({i, i + 1});
  return graph;
}

TwoTerminalGraph random_two_terminal(oracle::Random& random, std::size_t inside,
                                     std::uint32_t extra_percent) {
  TwoTerminalGraph graph;
  const auto count = static_cast<std::uint32_t>(inside + 2);
  std::set<std::pair<std::uint32_t, std::uint32_t>> edges;
  std::vector<bool> is_read(count, false);
  const auto join = [&](std::uint32_t from, std::uint32_t to) {
    edges.emplace(from, to);
    is_read[from] = true;
  };
  for (std::uint32_t to = 1; to < count; ++to) {
    join(random.chance(60) ? to - 1 : random.below(to), to);
    for (std::uint32_t from = 0; from < to; ++from) {
      if (random.chance(extra_percent)) join(from, to);
    }
  }
  for (std::uint32_t from = 0; from + 1 < count; ++from) {
    if (!is_read[from]) join(from, count - 1);
  }
  for (std::uint32_t i = 0; i < count; ++i) graph.bytes.push_back(Bytes{random.between(0, 9)});
  for (const auto& [from, to] : edges) graph.edges.push_back({from, to});
  return graph;
}

// What a set of kept vertices comes to, and whether each part of the rest touches two of them only.
struct Judged {
  Bytes total;
  bool two_terminal = true;
};

Judged judge(const TwoTerminalGraph& graph, const std::vector<bool>& kept) {
  const std::size_t count = graph.bytes.size();
  Judged judged;
  for (std::size_t i = 1; i + 1 < count; ++i) {
    if (kept[i]) judged.total += graph.bytes[i];
  }
  Bytes largest;
  std::vector<bool> seen(count, false);
  for (std::size_t start = 0; start < count; ++start) {
    if (kept[start] || seen[start]) continue;
    Bytes bytes;
    std::set<std::size_t> touched;
    std::vector<std::size_t> stack{start};
    seen[start] = true;
    while (!stack.empty()) {
      const std::size_t vertex = stack.back();
      stack.pop_back();
      bytes += graph.bytes[vertex];
      for (const auto [from, to] : graph.edges) {
        if (from != vertex && to != vertex) continue;
        const std::size_t other = from == vertex ? to : from;
        if (kept[other]) {
          touched.insert(other);
        } else if (!seen[other]) {
          seen[other] = true;
          stack.push_back(other);
        }
      }
    }
    judged.two_terminal = judged.two_terminal && touched.size() == 2;
    largest = std::max(largest, bytes);
  }
  judged.total += largest;
  return judged;
}

struct BruteForce {
  Bytes two_terminal{INT64_MAX};
  Bytes any{INT64_MAX};
};

BruteForce brute_force(const TwoTerminalGraph& graph) {
  const std::size_t inside = graph.bytes.size() - 2;
  BruteForce best;
  for (std::uint32_t choice = 0; choice < (1U << inside); ++choice) {
    std::vector<bool> kept(inside + 2, true);
    for (std::size_t i = 0; i < inside; ++i) kept[i + 1] = (choice >> i & 1U) != 0;
    const Judged judged = judge(graph, kept);
    best.any = std::min(best.any, judged.total);
    if (judged.two_terminal) best.two_terminal = std::min(best.two_terminal, judged.total);
  }
  return best;
}

// All in one segment is 18. Of single ones, the 3 leaves 4 + 6 in one segment, the 4 leaves 5 + 3.
TEST(Ogc, SplitsAChain) {
  const OgcAnswer answer = least(chain({5, 3, 4, 6}), Segments::two_terminal);
  EXPECT_EQ(answer.total(), Bytes{12});
  EXPECT_EQ(answer.kept, (std::vector<bool>{true, false, false, true, false, true}));
}

TEST(Ogc, MatchesBruteForceOverTwoTerminalSegments) {
  oracle::Random random(42);
  int segments_with_more_ends_help = 0;
  for (int i = 0; i < 2'000; ++i) {
    const auto inside = static_cast<std::size_t>(random.between(0, 8));
    const std::uint32_t extra = std::array<std::uint32_t, 4>{0, 3, 10, 25}[random.below(4)];
    const TwoTerminalGraph graph = random_two_terminal(random, inside, extra);
    const BruteForce best = brute_force(graph);
    const OgcAnswer two = least(graph, Segments::two_terminal);
    ASSERT_EQ(two.total(), best.two_terminal) << i;
    const Judged judged = judge(graph, two.kept);
    EXPECT_EQ(judged.total, two.total()) << i;
    EXPECT_TRUE(judged.two_terminal) << i;

    const OgcAnswer any = least(graph, Segments::any);
    EXPECT_EQ(judge(graph, any.kept).total, any.total()) << i;
    EXPECT_GE(any.total(), best.any) << i;
    EXPECT_LE(any.total(), two.total()) << i;
    if (any.total() < two.total()) ++segments_with_more_ends_help;
  }
  EXPECT_GT(segments_with_more_ends_help, 50);
}

TEST(Ogc, MatchesBruteForceOnChains) {
  oracle::Random random(43);
  for (int i = 0; i < 300; ++i) {
    TwoTerminalGraph graph = chain({});
    for (std::int64_t n = random.between(0, 11); n > 0; --n) {
      graph.edges.push_back({static_cast<std::uint32_t>(graph.bytes.size() - 1),
                             static_cast<std::uint32_t>(graph.bytes.size())});
      graph.bytes.push_back(Bytes{random.between(0, 20)});
    }
    ASSERT_EQ(least(graph, Segments::two_terminal).total(), brute_force(graph).two_terminal) << i;
  }
}

// What the original's solver reaches (papers: Feng and Huang, CVPR'21, on torchvision's networks):
// elements of the input and of each layer's output, for one picture.
TEST(Ogc, ReachesThePublishedTotalsOfChains) {
  struct Published {
    const char* name;
    std::int64_t batch;
    std::vector<std::int64_t> elements;
    std::int64_t all;
    std::int64_t total;
  };
  constexpr std::int64_t k224 = 64 * 224 * 224, k112 = 128 * 112 * 112, k56 = 256 * 56 * 56;
  constexpr std::int64_t k28 = 512 * 28 * 28, k14 = 512 * 14 * 14, k7 = 512 * 7 * 7;
  constexpr std::int64_t kInput = 3 * 224 * 224;
  const std::vector<Published> published{
      {"alexnet",
       1024,
       {kInput, 64 * 55 * 55, 64 * 27 * 27, 192 * 27 * 27, 192 * 13 * 13, 384 * 13 * 13,
        256 * 13 * 13, 256 * 13 * 13, 256 * 6 * 6, 256 * 6 * 6, 4096, 4096, 1000},
       760061952,
       279248896},
      {"vgg11",
       64,
       {kInput, k224, k224 / 4, k112, k112 / 4, k56, k56, k56 / 4, k28, k28, k28 / 4, k14, k14, k7,
        4096, 4096, 1000},
       583432704,
       282591232},
      {"vgg16",
       64,
       {kInput, k224, k224, k224 / 4, k112, k112, k112 / 4, k56, k56,  k56,  k56 / 4,
        k28,    k28,  k28,  k28 / 4,  k14,  k14,  k14,      k7,  4096, 4096, 1000},
       975206912,
       475267072},
  };
  for (const Published& network : published) {
    TwoTerminalGraph graph;
    Bytes all;
    for (const std::int64_t elements : network.elements) {
      const auto at = static_cast<std::uint32_t>(graph.bytes.size());
      if (at > 0) graph.edges.push_back({at - 1, at});
      graph.bytes.push_back(Bytes{elements * network.batch});
      all += graph.bytes.back();
    }
    EXPECT_EQ(all, Bytes{network.all}) << network.name;
    EXPECT_LE(least(graph, Segments::two_terminal).total(), Bytes{network.total}) << network.name;
  }
}

TEST(Ogc, TakesAChainOfTenThousand) {
  oracle::Random random(44);
  TwoTerminalGraph graph;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    graph.bytes.push_back(Bytes{random.between(1, 1'000'000)});
    if (i > 0) graph.edges.push_back({i - 1, i});
  }
  std::size_t calls = 0;
  const OgcSearch search(graph, Segments::two_terminal, [] { return true; });
  const OgcAnswer answer = search.least_total([&](std::size_t so_far) {
    calls = so_far;
    return true;
  });
  RecordProperty("calls", static_cast<int>(calls));
  EXPECT_LT(answer.total(), search.inside());
  EXPECT_LT(answer.total().count(), search.inside().count() / 20);
}

// A block in a block in a block, each with a way around it: to keep a vertex saves nothing unless
// all blocks around it are kept open as well.
TEST(Ogc, TakesADeepTree) {
  TwoTerminalGraph graph;
  const std::uint32_t depth = 300;
  const std::uint32_t count = 2 * depth + 2;
  graph.bytes.assign(count, Bytes{1});
  for (std::uint32_t i = 0; i + 1 < count; ++i) graph.edges.push_back({i, i + 1});
  for (std::uint32_t i = 0; i < depth; ++i) graph.edges.push_back({i, count - 1 - i});
  const OgcAnswer answer = least(graph, Segments::any);
  EXPECT_EQ(answer.total(), Bytes{count - 2});
}

// a and b lead to c and d crosswise: neither original step applies, and its two-terminal segments
// keep all four. Two stretches, {a, b} and {c, d}, keep two.
TEST(Ogc, CutsInterlockedPiecesAnywhere) {
  TwoTerminalGraph graph;
  graph.bytes = {Bytes{0}, Bytes{3}, Bytes{3}, Bytes{3}, Bytes{3}, Bytes{0}};
  graph.edges = {{0, 1}, {0, 2}, {1, 3}, {1, 4}, {2, 3}, {2, 4}, {3, 5}, {4, 5}};
  EXPECT_EQ(least(graph, Segments::two_terminal).total(), Bytes{12});
  EXPECT_EQ(least(graph, Segments::any).total(), Bytes{9});  // 6 kept, c and d 3 each
}

// Unit chain of 9: at the smallest total f2 and f5 or the like are kept.
TEST(Ogc, PlansWithinABudget) {
  const Graph graph = unit_chain(9);
  const auto run = [&](std::optional<std::int64_t> budget) {
    Budget bytes;
    if (budget) bytes.bytes = Bytes{*budget};
    return solve(find_solver("ogc"), {graph, bytes}, Limits{});
  };
  const Bytes least_peak = run(std::nullopt).peak;
  EXPECT_LE(least_peak, Bytes{6});
  Cost last{1'000};
  for (std::int64_t budget = least_peak.count(); budget <= 11; ++budget) {
    const Outcome outcome = run(budget);
    ASSERT_TRUE(outcome.plan) << budget;
    EXPECT_LE(outcome.cost, last);
    last = outcome.cost;
  }
  EXPECT_EQ(last, Cost{19});
}

TEST(Ogc, NeverFailsOnAnyGraphWithPhases) {
  oracle::Random random(45);
  for (int i = 0; i < 1'000; ++i) {
    const Graph graph = oracle::random_graph(random, {2, 12, 16});
    if (!graph.has_phases()) continue;
    const Outcome outcome = solve(find_solver("ogc"), {graph, Budget{}}, Limits{});
    ASSERT_TRUE(outcome.plan) << i;
  }
}

}  // namespace
}  // namespace reprise
