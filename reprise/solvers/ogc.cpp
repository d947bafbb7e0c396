// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/ogc.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "reprise/solvers/segments.h"

namespace reprise {
namespace {

using Piece = DivisionTree::Piece;
using Kind = DivisionTree::Kind;

// Numbers the connected parts of the graph without its kept vertices, in the order of their first
// vertex; kept vertices have none.
std::vector<std::uint32_t> parts_of(const TwoTerminalGraph& graph, const std::vector<bool>& kept) {
  std::vector<std::uint32_t> leader(graph.bytes.size());
  for (std::uint32_t i = 0; i < leader.size(); ++i) leader[i] = i;
  const auto find = [&](std::uint32_t vertex) {
    while (leader[vertex] != vertex) vertex = leader[vertex] = leader[leader[vertex]];
    return vertex;
  };
  for (const auto [from, to] : graph.edges) {
    if (kept[from] || kept[to]) continue;
    const std::uint32_t one = find(from);
    const std::uint32_t other = find(to);
    leader[std::max(one, other)] = std::min(one, other);
  }
  std::vector<std::uint32_t> part(leader.size(), DivisionTree::kNone);
  std::uint32_t parts = 0;
  for (std::uint32_t i = 0; i < leader.size(); ++i) {
    if (!kept[i]) part[i] = find(i) == i ? parts++ : part[find(i)];
  }
  return part;
}

// Solves every piece whose inside is above `most` for its ends being kept, from the smallest up.
class WithMost {
 public:
  WithMost(const TwoTerminalGraph& graph, const DivisionTree& tree,
           const std::vector<std::uint32_t>& last_reader, Bytes most, OgcSearch::Segments segments)
      : graph_(graph),
        tree_(tree),
        last_reader_(last_reader),
        most_(most),
        segments_(segments),
        solutions_(tree.pieces.size()) {
    for (std::size_t i = tree.pieces.size(); i-- > 0;) {
      if (tree.pieces[i].inside > most) solutions_[i] = solve(tree.pieces[i]);
    }
  }

  std::vector<bool> kept() const {
    std::vector<bool> kept(graph_.bytes.size(), false);
    kept.front() = kept.back() = true;
    std::vector<std::uint32_t> stack{0};
    while (!stack.empty()) {
      const std::uint32_t number = stack.back();
      stack.pop_back();
      for (const std::uint32_t vertex : solutions_[number].kept) kept[vertex] = true;
      if (solutions_[number].replaces_pieces) continue;
      for (const std::uint32_t inner : tree_.pieces[number].pieces) {
        if (is_above(inner)) stack.push_back(inner);
      }
    }
    return kept;
  }

 private:
  struct Solution {
    Bytes bytes;                      // kept inside the piece
    std::vector<std::uint32_t> kept;  // vertices, those of inner pieces aside
    bool replaces_pieces = false;     // inner pieces have no say
  };

  bool is_above(std::uint32_t number) const {
    return number != DivisionTree::kNone && tree_.pieces[number].inside > most_;
  }

  Solution solve(const Piece& piece) const {
    if (piece.kind == Kind::in_a_row) return solve_row(piece);
    Solution solution;
    for (const std::uint32_t inner : piece.pieces) {
      if (is_above(inner)) solution.bytes += solutions_[inner].bytes;
    }
    if (piece.kind == Kind::side_by_side) return solution;
    solution.kept = piece.vertices;
    for (const std::uint32_t vertex : piece.vertices) solution.bytes += graph_.bytes[vertex];
    if (segments_ == OgcSearch::Segments::any) {
      Solution stretches = solve_stretches(piece);
      if (stretches.bytes < solution.bytes) return stretches;
    }
    return solution;
  }

  // Shortest path along the row, where a segment may reach as far as `most` allows, and both ends
  // of an inner piece above it are kept. Vertex 0 is the source; of equal starts the latest.
  Solution solve_row(const Piece& row) const {
    const std::size_t count = row.vertices.size() + 1;
    std::vector<Bytes> least(count + 1);
    std::vector<std::size_t> from(count + 1, 0);
    std::vector<Bytes> before(count + 1);  // inside, up to but without the vertex
    std::deque<std::size_t> starts;        // `least` rises from front to back
    const auto bytes_at = [&](std::size_t i) {
      return i == 0 || i == count ? Bytes{0} : graph_.bytes[row.vertices[i - 1]];
    };
    for (std::size_t i = 1; i <= count; ++i) {
      while (!starts.empty() && least[starts.back()] >= least[i - 1]) starts.pop_back();
      starts.push_back(i - 1);
      const std::uint32_t inner = row.pieces[i - 1];
      const Bytes between = inner == DivisionTree::kNone ? Bytes{0} : tree_.pieces[inner].inside;
      before[i] = before[i - 1] + bytes_at(i - 1) + between;
      if (is_above(inner)) {
        from[i] = i - 1;
        least[i] = least[i - 1] + solutions_[inner].bytes;
        starts.clear();
      } else {
        while (before[i] - before[starts.front()] - bytes_at(starts.front()) > most_) {
          starts.pop_front();
        }
        from[i] = starts.front();
        least[i] = least[from[i]];
      }
      least[i] += bytes_at(i);
    }
    Solution solution;
    solution.bytes = least[count];
    for (std::size_t i = from[count]; i > 0; i = from[i]) {
      solution.kept.push_back(row.vertices[i - 1]);
    }
    return solution;
  }

  // The same along all vertices of the piece in order, its target last: of a stretch, what is read
  // after it is kept, and the rest is a segment.
  Solution solve_stretches(const Piece& piece) const {
    const std::size_t count = piece.all.size() + 1;
    std::vector<Bytes> least(count + 1);
    std::vector<std::size_t> from(count + 1, 0);
    const auto vertex_at = [&](std::size_t i) {
      return i + 1 == count ? piece.target : piece.all[i];
    };
    const auto is_kept = [&](std::size_t i, std::size_t to) {
      return i + 1 != count && last_reader_[vertex_at(i)] > vertex_at(to - 1);
    };
    for (std::size_t to = 1; to <= count; ++to) {
      std::optional<Bytes> best;
      Bytes kept;
      Bytes inside;
      for (std::size_t begin = to; begin-- > 0;) {
        if (begin + 1 != count) {
          (is_kept(begin, to) ? kept : inside) += graph_.bytes[vertex_at(begin)];
        }
        if (inside > most_) break;
        if (best && least[begin] + kept >= *best) continue;
        best = least[begin] + kept;
        from[to] = begin;
      }
      least[to] = *best;
    }
    Solution solution{least[count], {}, true};
    for (std::size_t to = count; to > 0; to = from[to]) {
      for (std::size_t i = from[to]; i < to; ++i) {
        if (is_kept(i, to)) solution.kept.push_back(vertex_at(i));
      }
    }
    return solution;
  }

  const TwoTerminalGraph& graph_;
  const DivisionTree& tree_;
  const std::vector<std::uint32_t>& last_reader_;
  Bytes most_;
  OgcSearch::Segments segments_;
  std::vector<Solution> solutions_;
};

// The forward ops that the loss depends on as a two-terminal graph. Vertex 0 and the last stand for
// what comes before and after; vertex i + 1 is op i of `ops`.
struct LossGraph {
  TwoTerminalGraph graph;
  std::vector<OpId> ops;
  IdVector<OpId, std::optional<OpId>> comes_with;  // an op left out: the one that reads it
};

// Leaves out ops that nothing in the graph leads to but fewer than kSide others like it, and that
// one op reads: but not the first.
IdVector<OpId, std::optional<OpId>> side_ops(const Graph& graph, const OpSet& forward) {
  constexpr int kSide = 4;
  IdVector<OpId, std::optional<OpId>> comes_with(graph.ops().size());
  IdVector<OpId, int> weight(graph.ops().size(), 0);
  bool is_first = true;
  for (const OpId op : graph.ops()) {
    if (!forward[op] || std::exchange(is_first, false)) continue;
    int ops = 1;
    for (const ValueId input : graph.inputs(op)) {
      const auto producer = graph.producer(input);
      if (!producer || !forward[*producer]) continue;
      ops += comes_with[*producer] ? weight[*producer] : kSide;
    }
    std::optional<OpId> reader;
    bool has_one_reader = true;
    for (const ValueId output : graph.outputs(op)) {
      for (const OpId next : graph.consumers(output)) {
        if (!forward[next]) continue;
        has_one_reader = has_one_reader && (!reader || *reader == next);
        reader = next;
      }
    }
    if (ops > kSide || !reader || !has_one_reader) continue;
    weight[op] = ops;
    comes_with[op] = reader;
  }
  return comes_with;
}

LossGraph forward_graph(const Graph& graph) {
  const OpSet forward = forward_of_loss(graph);
  LossGraph result{{}, {}, side_ops(graph, forward)};
  IdVector<OpId, std::uint32_t> vertex(graph.ops().size(), 0);
  result.graph.bytes.emplace_back(0);
  for (const OpId op : graph.ops()) {
    if (!forward[op] || result.comes_with[op]) continue;
    vertex[op] = static_cast<std::uint32_t>(result.graph.bytes.size());
    result.ops.push_back(op);
    Bytes bytes;
    for (const ValueId output : graph.outputs(op)) bytes += graph.bytes(output);
    result.graph.bytes.push_back(bytes);
  }
  const auto target = static_cast<std::uint32_t>(result.graph.bytes.size());
  result.graph.bytes.emplace_back(0);

  std::vector<bool> is_read(target, false);
  for (const OpId op : result.ops) {
    std::vector<std::uint32_t> before;
    for (const ValueId input : graph.inputs(op)) {
      const auto producer = graph.producer(input);
      if (producer && vertex[*producer] != 0) before.push_back(vertex[*producer]);
    }
    if (before.empty()) before.push_back(0);
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const std::uint32_t from : before) {
      result.graph.edges.push_back({from, vertex[op]});
      is_read[from] = true;
    }
  }
  for (std::uint32_t i = 1; i < target; ++i) {
    if (!is_read[i]) result.graph.edges.push_back({i, target});
  }
  return result;
}

// What the answer keeps. Segments are numbered by their last op, in program order.
KeptValues decision_of(const Graph& graph, const LossGraph& forward, const OgcAnswer& answer) {
  const std::vector<std::uint32_t> part = parts_of(forward.graph, answer.kept);
  const auto count = static_cast<std::uint32_t>(forward.ops.size());
  std::vector<std::uint32_t> last_of(count + 2, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!answer.kept[i + 1]) last_of[part[i + 1]] = i;
  }
  KeptValues decision{ValueSet(graph.values().size(), false),
                      IdVector<OpId, std::uint32_t>(graph.ops().size())};
  for (std::uint32_t i = 0; i < count; ++i) {
    const OpId op = forward.ops[i];
    decision.segments[op] = answer.kept[i + 1] ? i : last_of[part[i + 1]];
    if (!answer.kept[i + 1]) continue;
    for (const ValueId output : graph.outputs(op)) decision.kept[output] = true;
  }
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const OpId op{static_cast<std::uint32_t>(i)};
    if (const auto reader = forward.comes_with[op])
      decision.segments[op] = decision.segments[*reader];
  }
  return decision;
}

}  // namespace

OgcSearch::OgcSearch(TwoTerminalGraph graph, Segments segments,
                     const std::function<bool()>& keep_going)
    : graph_(std::move(graph)),
      segments_(segments),
      tree_(divide(graph_, keep_going)),
      last_reader_(graph_.bytes.size(), 0) {
  for (const auto [from, to] : graph_.edges) {
    last_reader_[from] = std::max(last_reader_[from], to);
  }
}

Bytes OgcSearch::inside() const { return tree_.pieces.front().inside; }

OgcAnswer OgcSearch::with_most(Bytes most) const {
  OgcAnswer answer;
  answer.kept = WithMost(graph_, tree_, last_reader_, most, segments_).kept();
  const std::vector<std::uint32_t> part = parts_of(graph_, answer.kept);
  std::vector<Bytes> inside(graph_.bytes.size());
  for (std::size_t i = 1; i + 1 < part.size(); ++i) {
    if (answer.kept[i]) {
      answer.kept_bytes += graph_.bytes[i];
    } else {
      inside[part[i]] += graph_.bytes[i];
      answer.largest_segment = std::max(answer.largest_segment, inside[part[i]]);
    }
  }
  return answer;
}

// Best first over ranges of `most`. In a range no less is kept than at the last place known above
// it, and no segment is smaller than its low end.
OgcAnswer OgcSearch::least_total(const std::function<bool(std::size_t)>& keep_going) const {
  struct Range {
    Bytes bound;
    Bytes low;
    Bytes high;
    bool operator>(const Range& other) const {
      return std::tie(bound, low) > std::tie(other.bound, other.low);
    }
  };
  std::priority_queue<Range, std::vector<Range>, std::greater<>> ranges;
  OgcAnswer best = with_most(inside());
  std::size_t calls = 1;
  const auto add_below = [&](const OgcAnswer& answer, Bytes low, Bytes high) {
    if (low <= high) ranges.push({answer.kept_bytes + low, low, high});
  };
  add_below(best, Bytes{0}, best.largest_segment - Bytes{1});
  while (!ranges.empty() && ranges.top().bound < best.total() && keep_going(calls)) {
    const Range range = ranges.top();
    ranges.pop();
    OgcAnswer answer = with_most(range.high);
    ++calls;
    const Bytes high = answer.largest_segment - Bytes{1};
    if (range.low <= high) {
      const Bytes middle{range.low.count() + (high - range.low).count() / 2};
      add_below(answer, range.low, middle);
      add_below(answer, middle + Bytes{1}, high);
    }
    if (answer.total() < best.total()) best = std::move(answer);
  }
  return best;
}

Findings ogc(const Problem& problem, const Limits& limits) {
  constexpr std::size_t kMostCalls = 2'000;
  constexpr std::int64_t kSweep = 64;
  const Graph& graph = problem.graph;
  const Stopwatch watch(limits);
  const LossGraph forward = forward_graph(graph);
  const OgcSearch search(forward.graph, OgcSearch::Segments::any,
                         [&] { return !watch.must_stop(); });
  Candidates candidates(problem);
  std::vector<bool> last;
  const auto offer = [&](const OgcAnswer& answer) {
    if (answer.kept == std::exchange(last, answer.kept)) return;
    offer_with_room(candidates, problem, decision_of(graph, forward, answer), watch);
  };
  offer(search.least_total(
      [&](std::size_t calls) { return calls < kMostCalls && !watch.must_stop(); }));
  // Evenly from all in one segment down to a 64th, then down to a 64th of that.
  const std::int64_t whole = search.inside().count();
  for (const std::int64_t top : {whole, whole / kSweep}) {
    for (std::int64_t i = kSweep; i > 0; --i) {
      if (watch.must_stop()) {
        candidates.stopped();
        return std::move(candidates).best();
      }
      watch.report(fmt::format("segments of up to {} bytes", top / kSweep * i));
      offer(search.with_most(Bytes{top / kSweep * i}));
    }
  }
  return std::move(candidates).best();
}

}  // namespace reprise
