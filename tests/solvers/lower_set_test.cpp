// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/formats/graph_formats.h"
#include "reprise/solvers/lower_sets/program.h"
#include "reprise/solvers/lower_sets/square_root.h"
#include "reprise/solvers/solver.h"
#include "tests/core/graphs.h"
#include "tests/oracle/random.h"
#include "tests/shared_data.h"

namespace reprise {
namespace {

LowerSetGraph random_forward_graph(oracle::Random& random) {
  LowerSetGraph graph;
  const auto count = static_cast<std::uint32_t>(random.between(1, 7));
  const auto density = static_cast<std::uint32_t>(random.between(10, 70));
  for (std::uint32_t node = 0; node < count; ++node) {
    graph.nodes.push_back({Cost{random.between(0, 4)}, Bytes{random.between(0, 9)}, {}});
    for (std::uint32_t read = 0; read < node; ++read) {
      if (random.chance(density)) graph.nodes[node].reads.push_back(read);
    }
  }
  return graph;
}

// The method by its definitions: sets are bit masks, a sequence a path through all of them.
class BruteForce {
 public:
  struct Answer {
    std::int64_t cost;
    std::int64_t bytes;
  };

  explicit BruteForce(const LowerSetGraph& graph) : graph_(graph) {
    for (Set set = 0; set <= everything(); ++set) {
      if (is_lower(set)) lower_.push_back(set);
    }
  }

  std::size_t sets() const { return lower_.size(); }

  std::size_t pairs() const {
    std::size_t count = 0;
    for (const Set a : lower_) {
      for (const Set b : lower_) count += a != b && (a & b) == a ? 1U : 0U;
    }
    return count;
  }

  // Of each sequence within the budget: kept cost and bytes.
  std::vector<Answer> sequences(std::int64_t budget) const {
    std::vector<Answer> answers;
    extend(0, 0, budget, answers);
    return answers;
  }

 private:
  using Set = std::uint32_t;

  Set everything() const { return (Set{1} << graph_.nodes.size()) - 1; }
  static bool has(Set set, std::uint32_t node) { return (set >> node & 1) != 0; }

  bool is_lower(Set set) const {
    for (std::uint32_t node = 0; node < graph_.nodes.size(); ++node) {
      for (const std::uint32_t read : graph_.nodes[node].reads) {
        if (has(set, node) && !has(set, read)) return false;
      }
    }
    return true;
  }

  std::int64_t bytes(Set set) const {
    std::int64_t sum = 0;
    for (std::uint32_t node = 0; node < graph_.nodes.size(); ++node) {
      if (has(set, node)) sum += graph_.nodes[node].bytes.count();
    }
    return sum;
  }

  std::int64_t cost(Set set) const {
    std::int64_t sum = 0;
    for (std::uint32_t node = 0; node < graph_.nodes.size(); ++node) {
      if (has(set, node)) sum += graph_.nodes[node].cost.count();
    }
    return sum;
  }

  Set readers_of(Set set) const {
    Set readers = 0;
    for (std::uint32_t node = 0; node < graph_.nodes.size(); ++node) {
      for (const std::uint32_t read : graph_.nodes[node].reads) {
        if (has(set, read)) readers |= Set{1} << node;
      }
    }
    return readers;
  }

  Set read_by(Set set) const {
    Set reads = 0;
    for (std::uint32_t node = 0; node < graph_.nodes.size(); ++node) {
      if (!has(set, node)) continue;
      for (const std::uint32_t read : graph_.nodes[node].reads) reads |= Set{1} << read;
    }
    return reads;
  }

  void extend(Set last, Set kept, std::int64_t budget, std::vector<Answer>& answers) const {
    if (last == everything()) answers.push_back({cost(kept), bytes(kept)});
    for (const Set next : lower_) {
      if (next == last || (next & last) != last) continue;
      const Set above = readers_of(next) & ~next;
      const Set beside = read_by(above) & ~next;
      if (bytes(kept) + 2 * bytes(next & ~last) + bytes(above) + bytes(beside) > budget) continue;
      extend(next, kept | (read_by(everything() & ~next) & next), budget, answers);
    }
  }

  const LowerSetGraph& graph_;
  std::vector<Set> lower_;
};

std::size_t pairs(const LowerSets& family) {
  std::size_t count = 0;
  for (std::size_t b = 0; b < family.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) count += family.is_subset(a, b) ? 1U : 0U;
  }
  return count;
}

TEST(LowerSets, AreAllThereAre) {
  oracle::Random random(1);
  for (int i = 0; i < 300; ++i) {
    const LowerSetGraph graph = random_forward_graph(random);
    const BruteForce brute_force(graph);
    const auto all = LowerSets::all(graph, {});
    EXPECT_EQ(all->size(), brute_force.sets()) << i;
    EXPECT_EQ(pairs(*all), brute_force.pairs()) << i;
    const auto ancestors = LowerSets::of_ancestors(graph, {});
    EXPECT_LE(ancestors->size(), all->size());
    EXPECT_EQ(ancestors->count(ancestors->size() - 1), graph.nodes.size());
  }
}

TEST(LowerSets, EndWhereThereIsNoRoom) {
  LowerSetGraph apart;  // 2^20 lower sets
  for (int i = 0; i < 20; ++i) apart.nodes.push_back({Cost{1}, Bytes{1}, {}});
  EXPECT_FALSE(LowerSets::all(apart, {}));
  LowerSets::Room room;
  room.memory = Bytes{100};
  EXPECT_FALSE(LowerSets::of_ancestors(apart, room));
  room.memory = Bytes{100'000};
  room.keep_going = [] { return false; };
  EXPECT_FALSE(LowerSets::of_ancestors(apart, room));
}

TEST(LowerSets, AddUpToNoMoreThanFits) {
  LowerSetGraph huge;
  huge.nodes.push_back({Cost{1}, Bytes{INT64_MAX / 4}, {}});
  EXPECT_THROW(LowerSets::all(huge, {}), OverflowError);
}

TEST(LowerSetProgram, MatchesBruteForceOnRandomDags) {
  oracle::Random random(2);
  for (int i = 0; i < 200; ++i) {
    const LowerSetGraph graph = random_forward_graph(random);
    const BruteForce brute_force(graph);
    const auto family = LowerSets::all(graph, {});
    const LowerSetProgram program(graph, *family);
    const std::int64_t smallest = program.smallest_budget(program.largest_budget(), {})->count();
    EXPECT_TRUE(smallest == 0 || brute_force.sequences(smallest - 1).empty());
    for (const std::int64_t budget : {smallest, smallest + 3, smallest * 2, smallest * 5}) {
      SCOPED_TRACE(testing::Message() << "graph " << i << ", budget " << budget);
      const auto answers = brute_force.sequences(budget);
      ASSERT_FALSE(answers.empty());
      std::int64_t most_cost = 0;
      std::int64_t fewest_bytes = INT64_MAX;
      for (const auto& answer : answers) {
        most_cost = std::max(most_cost, answer.cost);
        fewest_bytes = std::min(fewest_bytes, answer.bytes);
      }
      const auto front = program.run(Bytes{budget}, {});
      const LowerSetSequence most = front->sequence(front->size() - 1);
      EXPECT_EQ(most.kept_cost, Cost{most_cost});
      EXPECT_LE(most.peak, Bytes{budget});
      const LowerSetSequence fewest = front->sequence(0);
      EXPECT_EQ(fewest.kept_bytes, Bytes{fewest_bytes});

      // Shortcuts that have to change nothing.
      LowerSetProgram::Options options;
      options.states_per_set = 1;
      EXPECT_EQ(program.run(Bytes{budget}, options)->sequence(0).segments, fewest.segments);
      options = {};
      options.at_least = most_cost;
      const auto pruned = program.run(Bytes{budget}, options);
      EXPECT_EQ(pruned->sequence(pruned->size() - 1).segments, most.segments);
    }
    if (HasFailure()) FAIL();
  }
}

TEST(LowerSetProgram, EndsWhereThereIsNoRoom) {
  LowerSetGraph graph;
  for (std::uint32_t i = 0; i < 100; ++i) {
    graph.nodes.push_back({Cost{1}, Bytes{1}, {}});
    if (i > 0) graph.nodes[i].reads = {i - 1};
  }
  const auto family = LowerSets::all(graph, {});
  const LowerSetProgram program(graph, *family);
  LowerSetProgram::Options options;
  options.room.memory = Bytes{240};  // ten states
  EXPECT_FALSE(program.run(Bytes{1000}, options));
}

// Six equal nodes in a row, 10 bytes each: candidates ∅, 6 prefixes: root 2, step 30. The prefix of
// 40 bytes is the first past 30; then the threshold is 60, which no candidate but the last passes.
TEST(SquareRoot, TakesSetsAtEqualDistances) {
  LowerSetGraph graph;
  for (std::uint32_t i = 0; i < 6; ++i) {
    graph.nodes.push_back({Cost{1}, Bytes{10}, {}});
    if (i > 0) graph.nodes[i].reads = {i - 1};
  }
  const auto result = square_root_sequence(graph, *LowerSets::all(graph, {}));
  EXPECT_EQ(result.candidates, 7U);
  EXPECT_EQ(result.root, 2);
  EXPECT_EQ(result.sequence.segments, (std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1}));
}

TEST(LowerSets, AreAsManyAsPublished) {
  SKIP_WITHOUT_SHARED_DATA();
  struct Row {
    const char* file;
    std::size_t sets, pairs, pairs_of_ancestors;
  };
  for (const Row& row :
       {Row{"pfnet/cg_vgg19.txt", 47, 1081, 1081}, Row{"pfnet/cg_unet.txt", 331, 28635, 1717},
        Row{"pfnet/cg_resnet50.txt", 241, 28488, 15512}}) {
    const Graph graph = read_graph(read_text(shared_data(row.file)));
    LowerSetGraph forward;
    for (const OpId op : graph.ops()) {  // forward ops come first
      if (graph.phase(op) != Phase::forward) break;
      forward.nodes.push_back({graph.cost(op), graph.bytes(graph.outputs(op)[0]), {}});
      for (const ValueId input : graph.inputs(op)) {
        if (graph.resident(input)) continue;
        forward.nodes.back().reads.push_back(graph.producer(input)->index);
      }
    }
    const auto all = LowerSets::all(forward, {});
    EXPECT_EQ(all->size(), row.sets);
    EXPECT_EQ(pairs(*all), row.pairs);
    EXPECT_EQ(pairs(*LowerSets::of_ancestors(forward, {})), row.pairs_of_ancestors);
  }
}

Outcome run(std::string_view solver, const Graph& graph, std::optional<std::int64_t> budget,
            const Limits& limits = {}) {
  Budget bytes;
  if (budget) bytes.bytes = Bytes{*budget};
  return solve(find_solver(solver), {graph, bytes}, limits);
}

// 16 forward ops: in 4 segments of 4, three boundaries are kept, and the last segment as a whole;
// the backward pass of another segment holds its 4 values, two gradients and what is kept.
TEST(LowerSet, TradesMemoryForTimeOnAChain) {
  const Graph graph = unit_chain(16);
  const Outcome plain = run("lower-set", graph, 18);
  EXPECT_EQ(plain.cost, graph.base_cost());
  for (const std::string_view solver : {"lower-set", "lower-set-exact"}) {
    const Outcome outcome = run(solver, graph, 9);
    ASSERT_TRUE(outcome.plan);
    EXPECT_LE(outcome.peak, Bytes{9});
    EXPECT_LE(outcome.cost, graph.base_cost() + Cost{12});  // no op runs more than twice
    EXPECT_LE(run(solver, graph, 12).cost, outcome.cost);
    EXPECT_LE(run(solver, graph, std::nullopt).peak, Bytes{9});
  }
}

TEST(LowerSet, MemoryObjectiveTakesItsOwnWay) {
  const Graph graph = unit_chain(16);
  const Problem problem{graph, Budget{Bytes{12}}, Objective::memory};
  const Outcome outcome = solve(find_solver("lower-set"), problem, {});
  ASSERT_TRUE(outcome.plan);
  EXPECT_GE(outcome.cost, run("lower-set", graph, 12).cost);
}

TEST(LowerSetExact, IsNeverWorseThanTheAncestorsAlone) {
  SKIP_WITHOUT_SHARED_DATA();
  for (const char* file : {"pfnet/cg_unet.txt", "pfnet/cg_resnet50.txt"}) {
    const Graph graph = read_graph(read_text(shared_data(file)));
    const std::int64_t base = simulate(graph, base_run(graph)).peak.count();
    for (const std::int64_t share : {40, 60, 80}) {
      const Outcome some = run("lower-set", graph, base / 100 * share);
      const Outcome all = run("lower-set-exact", graph, base / 100 * share);
      if (some.plan) {
        EXPECT_LE(all.cost, some.cost) << file << " " << share;
      }
    }
  }
}

TEST(LowerSetExact, IsStoppedWithWhatTheAncestorsGave) {
  GraphBuilder build("wide");  // 2^30 lower sets
  std::vector<ValueId> values;
  for (int i = 0; i < 30; ++i) {
    const std::string name = "f" + std::to_string(i);
    values.push_back(build.op(name).cost(Cost{1}).phase(Phase::forward).makes(name, Bytes{1}));
  }
  ValueId last =
      build.op("sum").cost(Cost{1}).phase(Phase::forward).reads(values).makes("sum", Bytes{1});
  for (int i = 0; i < 30; ++i) {
    const std::string name = "b" + std::to_string(i);
    auto op = build.op(name);
    op.cost(Cost{1}).phase(Phase::backward).reads({last, values[static_cast<std::size_t>(i)]});
    last = op.makes(name, Bytes{1});
  }
  const Graph graph = build.done();
  const Outcome outcome = run("lower-set-exact", graph, std::nullopt);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_TRUE(outcome.plan);
  EXPECT_FALSE(run("lower-set", graph, std::nullopt).stopped);

  const std::atomic<bool> stop{true};
  Limits interrupted;
  interrupted.stop = &stop;
  EXPECT_TRUE(run("lower-set", graph, std::nullopt, interrupted).stopped);
}

}  // namespace
}  // namespace reprise
