// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/topology.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace reprise {
namespace {

// Marks what `next` leads to from `start`, in any number of steps.
template <class Next>
OpSet reachable(const Graph& graph, OpId start, Next next) {
  OpSet seen(graph.ops().size(), false);
  std::vector<OpId> stack{start};
  while (!stack.empty()) {
    const OpId op = stack.back();
    stack.pop_back();
    next(op, [&](OpId neighbour) {
      if (seen[neighbour]) return;
      seen[neighbour] = true;
      stack.push_back(neighbour);
    });
  }
  return seen;
}

// The undirected graph that articulation_points looks at: the ops, then an entry that is joined to
// the first op of `among` and an exit that is joined to those nobody reads.
Digraph undirected(const Graph& graph, const OpSet& among) {
  const auto entry = static_cast<std::uint32_t>(graph.ops().size());
  const std::uint32_t exit = entry + 1;
  std::vector<Digraph::Edge> edges;
  const auto join = [&](std::uint32_t a, std::uint32_t b) {
    edges.push_back({a, b});
    edges.push_back({b, a});
  };
  for (const OpId op : graph.ops()) {
    if (!among[op]) continue;
    if (edges.empty()) join(entry, op.index);
    bool is_read = false;
    for (const ValueId output : graph.outputs(op)) {
      for (const OpId reader : graph.consumers(output)) {
        if (!among[reader]) continue;
        join(op.index, reader.index);
        is_read = true;
      }
    }
    if (!is_read) join(op.index, exit);
  }
  return Digraph(graph.ops().size() + 2, edges);
}

}  // namespace

Digraph::Digraph(std::size_t count, std::span<const Edge> edges) : ends_(count, 0) {
  for (const Edge& edge : edges) ++ends_[edge.from];
  std::uint32_t total = 0;
  for (std::uint32_t& end : ends_) total += std::exchange(end, total);
  targets_.resize(edges.size());
  for (const Edge& edge : edges) targets_[ends_[edge.from]++] = edge.to;
}

std::optional<std::vector<std::uint32_t>> topological_order(const Digraph& graph,
                                                            std::span<const std::int64_t> rank) {
  const auto count = static_cast<std::uint32_t>(graph.size());
  std::vector<std::uint32_t> waits_for(count, 0);
  for (std::uint32_t node = 0; node < count; ++node) {
    for (const std::uint32_t next : graph.successors(node)) ++waits_for[next];
  }
  using Ranked = std::pair<std::int64_t, std::uint32_t>;
  std::priority_queue<Ranked, std::vector<Ranked>, std::greater<>> ready;
  const auto make_ready = [&](std::uint32_t node) {
    ready.emplace(rank.empty() ? 0 : rank[node], node);
  };
  for (std::uint32_t node = 0; node < count; ++node) {
    if (waits_for[node] == 0) make_ready(node);
  }
  std::vector<std::uint32_t> order;
  order.reserve(count);
  while (!ready.empty()) {
    const std::uint32_t node = ready.top().second;
    ready.pop();
    order.push_back(node);
    for (const std::uint32_t next : graph.successors(node)) {
      if (--waits_for[next] == 0) make_ready(next);
    }
  }
  if (order.size() != count) return std::nullopt;
  return order;
}

// Depth-first search with a stack of its own: an edge to a node that is still on the path closes a
// cycle.
std::vector<std::uint32_t> find_cycle(const Digraph& graph) {
  enum class Mark : std::uint8_t { fresh, on_path, left };
  std::vector<Mark> marks(graph.size(), Mark::fresh);
  struct Visit {
    std::uint32_t node;
    std::size_t next = 0;  // successor to look at
  };
  std::vector<Visit> path;
  for (std::uint32_t start = 0; start < graph.size(); ++start) {
    if (marks[start] != Mark::fresh) continue;
    marks[start] = Mark::on_path;
    path.push_back({start});
    while (!path.empty()) {
      Visit& top = path.back();
      const auto successors = graph.successors(top.node);
      if (top.next == successors.size()) {
        marks[top.node] = Mark::left;
        path.pop_back();
        continue;
      }
      const std::uint32_t next = successors[top.next++];
      if (marks[next] == Mark::on_path) {
        const auto begin = std::find_if(path.begin(), path.end(),
                                        [next](const Visit& visit) { return visit.node == next; });
        std::vector<std::uint32_t> cycle;
        for (auto visit = begin; visit != path.end(); ++visit) cycle.push_back(visit->node);
        return cycle;
      }
      if (marks[next] == Mark::fresh) {
        marks[next] = Mark::on_path;
        path.push_back({next});
      }
    }
  }
  return {};
}

std::string cycle_text(std::span<const std::uint32_t> cycle,
                       const std::function<std::string(std::uint32_t)>& name) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const bool left_out = cycle.size() > kShown && i >= kShown / 2 && i < cycle.size() - kShown / 2;
    if (left_out && i > kShown / 2) continue;
    text += left_out ? "… → " : in_quotes(name(cycle[i])) + " → ";
  }
  return text + in_quotes(name(cycle.front()));
}

OpSet ancestors(const Graph& graph, OpId op) {
  return reachable(graph, op, [&](OpId from, auto visit) {
    for (const ValueId input : graph.inputs(from)) {
      if (const auto producer = graph.producer(input)) visit(*producer);
    }
  });
}

OpSet descendants(const Graph& graph, OpId op) {
  return reachable(graph, op, [&](OpId from, auto visit) {
    for (const ValueId output : graph.outputs(from)) {
      for (const OpId reader : graph.consumers(output)) visit(reader);
    }
  });
}

std::vector<OpId> MissingOps::of(std::span<const ValueId> values, const ValueSet& there) {
  std::vector<OpId> missing;
  const auto want = [&](ValueId value) {
    if (there[value]) return;
    const OpId producer = *graph_.producer(value);
    if (wanted_[producer]) return;
    wanted_[producer] = true;
    missing.push_back(producer);
  };
  for (const ValueId value : values) want(value);
  for (std::size_t i = 0; i < missing.size(); ++i) {  // NOLINT(modernize-loop-convert): it grows
    for (const ValueId input : graph_.inputs(missing[i])) want(input);
  }
  for (const OpId op : missing) wanted_[op] = false;
  std::sort(missing.begin(), missing.end());
  return missing;
}

// Tarjan's low-link search from the entry, with a stack of its own: an op parts entry and exit
// where the exit is below one of its children and nothing below that child reaches above the op.
std::vector<OpId> articulation_points(const Graph& graph, const OpSet& among) {
  const Digraph edges = undirected(graph, among);
  const auto entry = static_cast<std::uint32_t>(graph.ops().size());
  const std::uint32_t exit = entry + 1;
  std::vector<std::uint32_t> found_at(edges.size(), 0);  // 0: not yet
  std::vector<std::uint32_t> lowest(edges.size(), 0);
  std::vector<bool> leads_to_exit(edges.size(), false);
  leads_to_exit[exit] = true;
  OpSet cuts(graph.ops().size(), false);

  struct Visit {
    std::uint32_t node;
    std::uint32_t parent;
    std::size_t next = 0;
  };
  std::uint32_t clock = 1;
  std::vector<Visit> path{{entry, entry}};
  found_at[entry] = lowest[entry] = clock;
  while (!path.empty()) {
    Visit& top = path.back();
    const auto neighbours = edges.successors(top.node);
    if (top.next < neighbours.size()) {
      const std::uint32_t next = neighbours[top.next++];
      if (found_at[next] == 0) {
        found_at[next] = lowest[next] = ++clock;
        path.push_back({next, top.node});
      } else if (next != top.parent) {
        lowest[top.node] = std::min(lowest[top.node], found_at[next]);
      }
      continue;
    }
    const std::uint32_t node = top.node;
    path.pop_back();
    if (path.empty()) break;
    const std::uint32_t parent = path.back().node;
    lowest[parent] = std::min(lowest[parent], lowest[node]);
    if (!leads_to_exit[node]) continue;
    leads_to_exit[parent] = true;
    if (parent < entry && lowest[node] >= found_at[parent]) cuts[OpId{parent}] = true;
  }

  std::vector<OpId> points;
  for (const OpId op : graph.ops()) {
    if (cuts[op]) points.push_back(op);
  }
  return points;
}

}  // namespace reprise
