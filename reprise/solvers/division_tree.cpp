// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/division_tree.h"

#include <algorithm>
#include <span>
#include <utility>

namespace reprise {
namespace {

using Vertex = std::uint32_t;
using Vertices = std::vector<Vertex>;
constexpr Vertex kNone = DivisionTree::kNone;

// One piece's own undirected graph. Local numbers: 0 is the source, then the inside in order, last
// the target. Edges straight from source to target have no inside and are left out.
struct LocalGraph {
  std::vector<Digraph::Edge> forward;
  std::vector<Vertices> neighbours;
};

// Tarjan's search over a local graph with one vertex taken out: the parts that one more vertex cuts
// off from both ends.
class CutOffParts {
 public:
  explicit CutOffParts(const LocalGraph& local)
      : local_(local),
        target_(static_cast<Vertex>(local.neighbours.size() - 1)),
        at_(local.neighbours.size()),
        lowest_(local.neighbours.size()),
        parent_(local.neighbours.size()),
        size_(local.neighbours.size()) {}

  // Calls `found(cut, part)` for the largest parts that each are cut off by `without` and `cut`.
  template <class Found>
  void search(Vertex without, Found found) {
    const Vertex root = without == 0 ? target_ : 0;
    number_from(root, without);
    const bool both_ends = without != 0 && without != target_;
    for (std::size_t i = 1; i < order_.size();) {
      const Vertex top = order_[i];
      const Vertex cut = parent_[top];
      const bool is_cut_off = lowest_[top] >= at_[cut];
      const bool has_end =
          both_ends && at_[target_] >= at_[top] && at_[target_] < at_[top] + size_[top];
      const bool is_whole = cut == root && !both_ends;
      if (!is_cut_off || has_end || is_whole) {
        ++i;
        continue;
      }
      found(cut, std::span(order_).subspan(i, size_[top]));
      i += size_[top];
    }
  }

 private:
  // Preorder numbers, lowest numbers reached and subtree sizes. The two ends count as joined.
  void number_from(Vertex root, Vertex without) {
    std::fill(at_.begin(), at_.end(), kNone);
    at_[without] = kNone - 1;  // never entered
    order_.clear();
    path_.clear();
    const auto enter = [&](Vertex vertex, Vertex parent) {
      parent_[vertex] = parent;
      lowest_[vertex] = at_[vertex] = static_cast<Vertex>(order_.size());
      order_.push_back(vertex);
      path_.emplace_back(vertex, 0);
    };
    const auto look = [&](Vertex from, Vertex to) {
      if (to == without || to == parent_[from]) return;
      if (at_[to] == kNone) {
        enter(to, from);
      } else {
        lowest_[from] = std::min(lowest_[from], at_[to]);
      }
    };
    enter(root, root);
    while (!path_.empty()) {
      auto& [vertex, next] = path_.back();
      const Vertices& neighbours = local_.neighbours[vertex];
      const Vertex from = vertex;
      if (next < neighbours.size()) {
        look(from, neighbours[next++]);
        continue;
      }
      if (next++ == neighbours.size() && (from == 0 || from == target_)) {
        look(from, from == 0 ? target_ : 0);
        continue;
      }
      size_[from] = static_cast<Vertex>(order_.size()) - at_[from];
      path_.pop_back();
      lowest_[parent_[from]] = std::min(lowest_[parent_[from]], lowest_[from]);
    }
  }

  const LocalGraph& local_;
  Vertex target_;
  Vertices at_, lowest_, parent_, size_;
  Vertices order_;
  std::vector<std::pair<Vertex, std::size_t>> path_;
};

class Divider {
 public:
  explicit Divider(const TwoTerminalGraph& graph)
      : graph_(graph),
        after_(graph.bytes.size()),
        before_(graph.bytes.size()),
        local_number_(graph.bytes.size(), 0) {
    for (const auto [from, to] : graph.edges) {
      after_[from].push_back(to);
      before_[to].push_back(from);
    }
  }

  DivisionTree divide(const std::function<bool()>& keep_going) {
    Vertices inside;
    const auto target = static_cast<Vertex>(graph_.bytes.size() - 1);
    for (Vertex vertex = 1; vertex < target; ++vertex) inside.push_back(vertex);
    add(0, target, std::move(inside));
    for (std::size_t i = 0; i < insides_.size(); ++i) {
      Vertices all = std::exchange(insides_[i], {});
      if (keep_going()) {
        divide(i, all);
      } else {
        leave_whole(i, std::move(all));
      }
    }
    return std::move(tree_);
  }

 private:
  std::uint32_t add(Vertex source, Vertex target, Vertices inside) {
    if (inside.empty() && !tree_.pieces.empty()) return kNone;
    DivisionTree::Piece piece;
    piece.source = source;
    piece.target = target;
    for (const Vertex vertex : inside) piece.inside += graph_.bytes[vertex];
    tree_.pieces.push_back(std::move(piece));
    insides_.push_back(std::move(inside));
    return static_cast<std::uint32_t>(insides_.size() - 1);
  }

  void divide(std::size_t number, const Vertices& all) {
    const auto [source, target] = ends_of(number);
    const LocalGraph local = local_graph(source, target, all);
    if (divide_in_a_row(number, local, all)) return;
    if (divide_side_by_side(number, local, all)) return;
    divide_interlocked(number, local, all);
  }

  void leave_whole(std::size_t number, Vertices all) {
    tree_.pieces[number].kind = DivisionTree::Kind::interlocked;
    tree_.pieces[number].vertices = all;
    tree_.pieces[number].all = std::move(all);
  }

  std::pair<Vertex, Vertex> ends_of(std::size_t number) const {
    return {tree_.pieces[number].source, tree_.pieces[number].target};
  }

  LocalGraph local_graph(Vertex source, Vertex target, const Vertices& all) {
    LocalGraph local;
    local.neighbours.resize(all.size() + 2);
    for (std::size_t i = 0; i < all.size(); ++i) local_number_[all[i]] = static_cast<Vertex>(i + 1);
    local_number_[source] = 0;
    local_number_[target] = static_cast<Vertex>(all.size() + 1);
    const auto join = [&](Vertex from, Vertex to) {
      local.forward.push_back({from, to});
      local.neighbours[from].push_back(to);
      local.neighbours[to].push_back(from);
    };
    for (const Vertex vertex : all) {
      for (const Vertex from : before_[vertex]) join(local_number_[from], local_number_[vertex]);
      for (const Vertex to : after_[vertex]) {
        if (to == target) join(local_number_[vertex], local_number_[to]);
      }
    }
    return local;
  }

  // A vertex is on every path if no edge passes over it.
  bool divide_in_a_row(std::size_t number, const LocalGraph& local, const Vertices& all) {
    std::vector<std::int64_t> passing(all.size() + 3, 0);
    for (const auto [from, to] : local.forward) {
      ++passing[from + 1];
      --passing[to];
    }
    Vertices on_every_path;
    std::int64_t over = 0;
    for (std::size_t i = 1; i <= all.size(); ++i) {
      over += passing[i];
      if (over == 0) on_every_path.push_back(all[i - 1]);
    }
    if (on_every_path.empty() && !all.empty()) return false;

    DivisionTree::Piece row = tree_.pieces[number];
    row.kind = DivisionTree::Kind::in_a_row;
    Vertex last = row.source;
    auto next = all.begin();
    on_every_path.push_back(row.target);
    for (const Vertex vertex : on_every_path) {
      Vertices between;
      while (next != all.end() && *next < vertex) between.push_back(*next++);
      if (next != all.end() && *next == vertex) ++next;
      row.pieces.push_back(add(last, vertex, std::move(between)));
      last = vertex;
    }
    on_every_path.pop_back();
    row.vertices = std::move(on_every_path);
    tree_.pieces[number] = std::move(row);
    return true;
  }

  bool divide_side_by_side(std::size_t number, const LocalGraph& local, const Vertices& all) {
    const auto end = static_cast<Vertex>(all.size() + 1);
    std::vector<Vertex> part_of(all.size() + 2, kNone);
    Vertex parts = 0;
    for (Vertex start = 1; start < end; ++start) {
      if (part_of[start] != kNone) continue;
      part_of[start] = parts;
      Vertices stack{start};
      while (!stack.empty()) {
        const Vertex vertex = stack.back();
        stack.pop_back();
        for (const Vertex next : local.neighbours[vertex]) {
          if (next == 0 || next == end || part_of[next] != kNone) continue;
          part_of[next] = parts;
          stack.push_back(next);
        }
      }
      ++parts;
    }
    if (parts < 2) return false;
    std::vector<Vertices> insides(parts);
    for (Vertex i = 1; i < end; ++i) insides[part_of[i]].push_back(all[i - 1]);
    tree_.pieces[number].kind = DivisionTree::Kind::side_by_side;
    for (Vertices& inside : insides) {
      const auto [source, target] = ends_of(number);
      const std::uint32_t piece = add(source, target, std::move(inside));
      tree_.pieces[number].pieces.push_back(piece);
    }
    return true;
  }

  // The ends, and the vertices with more than two neighbours: only these stand between pieces that
  // interlock.
  static Vertices between_pieces(const LocalGraph& local) {
    constexpr std::size_t kMostSearch = 1'000'000'000;
    Vertices between;
    for (Vertex vertex = 0; vertex < local.neighbours.size(); ++vertex) {
      const bool is_end = vertex == 0 || vertex + 1 == local.neighbours.size();
      if (is_end || local.neighbours[vertex].size() > 2) between.push_back(vertex);
    }
    if (between.size() > kMostSearch / (local.forward.size() + 1)) between.clear();
    return between;
  }

  void divide_interlocked(std::size_t number, const LocalGraph& local, const Vertices& all) {
    // The largest piece around each vertex: its size and the two vertices that cut it off.
    struct Around {
      std::size_t size = 0;
      Vertex one = 0, other = 0;
    };
    std::vector<Around> around(all.size() + 2);
    CutOffParts parts(local);
    for (const Vertex one : between_pieces(local)) {
      parts.search(one, [&](Vertex other, std::span<const Vertex> part) {
        if (around[part.front()].size >= part.size()) return;
        for (const Vertex vertex : part) around[vertex] = {part.size(), one, other};
      });
    }
    tree_.pieces[number].kind = DivisionTree::Kind::interlocked;
    tree_.pieces[number].all = all;
    std::vector<bool> taken(all.size() + 2, false);
    for (Vertex start = 1; start <= all.size(); ++start) {
      if (taken[start]) continue;
      if (around[start].size == 0) {
        tree_.pieces[number].vertices.push_back(all[start - 1]);
        continue;
      }
      const auto [size, one, other] = around[start];
      Vertices inside;
      Vertices stack{start};
      taken[start] = true;
      while (!stack.empty()) {
        const Vertex vertex = stack.back();
        stack.pop_back();
        inside.push_back(all[vertex - 1]);
        for (const Vertex next : local.neighbours[vertex]) {
          if (next == one || next == other || taken[next]) continue;
          taken[next] = true;
          stack.push_back(next);
        }
      }
      std::sort(inside.begin(), inside.end());
      const auto in_graph = [&](Vertex vertex) {
        const auto [source, target] = ends_of(number);
        return vertex == 0 ? source : vertex > all.size() ? target : all[vertex - 1];
      };
      const std::uint32_t piece =
          add(in_graph(std::min(one, other)), in_graph(std::max(one, other)), std::move(inside));
      tree_.pieces[number].pieces.push_back(piece);
    }
  }

  const TwoTerminalGraph& graph_;
  std::vector<Vertices> after_;
  std::vector<Vertices> before_;
  Vertices local_number_;
  DivisionTree tree_;
  std::vector<Vertices> insides_;  // of pieces that are still to be divided
};

}  // namespace

DivisionTree divide(const TwoTerminalGraph& graph, const std::function<bool()>& keep_going) {
  return Divider(graph).divide(keep_going);
}

}  // namespace reprise
