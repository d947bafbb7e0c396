// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reprise/core/graph.h"

namespace reprise {

// A plain directed graph over the nodes 0 .. count-1, for what has no Graph yet.
class Digraph {
 public:
  struct Edge {
    std::uint32_t from;
    std::uint32_t to;
  };
  Digraph(std::size_t count, std::span<const Edge> edges);

  std::size_t size() const { return ends_.size(); }
  std::span<const std::uint32_t> successors(std::uint32_t node) const {
    const std::uint32_t begin = node == 0 ? 0 : ends_[node - 1];
    return {targets_.data() + begin, ends_[node] - begin};
  }

 private:
  std::vector<std::uint32_t> targets_;  // in the order the edges were given
  std::vector<std::uint32_t> ends_;
};

// The topological order that always takes, of the ready nodes, the one of lowest rank (ties: lowest
// number); none where there is a cycle. `rank` may be empty. O((nodes + edges) log nodes).
std::optional<std::vector<std::uint32_t>> topological_order(
    const Digraph& graph, std::span<const std::int64_t> rank = {});

// The nodes of some cycle in order, each an edge before the next and the last before the first;
// empty where there is none.
std::vector<std::uint32_t> find_cycle(const Digraph& graph);

// "'a' → 'b' → 'a'"; the middle of a long cycle is left out.
std::string cycle_text(std::span<const std::uint32_t> cycle,
                       const std::function<std::string(std::uint32_t)>& name);

// Which ops have to run before `op`, and which need it to have run; itself not included.
OpSet ancestors(const Graph& graph, OpId op);
OpSet descendants(const Graph& graph, OpId op);

// Finds what has to run for values to be there. Borrows the graph; made once for many questions.
class MissingOps {
 public:
  explicit MissingOps(const Graph& graph) : graph_(graph), wanted_(graph.ops().size(), false) {}

  // The producers of those of `values` that are not `there`, of their inputs that are not, and so
  // on: each once, in program order. O(ops found · log, and their edges).
  std::vector<OpId> of(std::span<const ValueId> values, const ValueSet& there);

 private:
  const Graph& graph_;
  OpSet wanted_;  // none, between two questions
};

// The ops of `among` that part it: every undirected path from its first op to an op of it that no
// other op of it reads goes through each of them. In program order. O(ops + edges).
//
// On a graph with one entry and one exit these are the articulation points of Checkmate (Jain et
// al., MLSys'20). Side branches that join or leave on the way (a cast of a weight) change nothing.
std::vector<OpId> articulation_points(const Graph& graph, const OpSet& among);

}  // namespace reprise
