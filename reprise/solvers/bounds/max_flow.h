// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace reprise {

// A network under a maximum flow, by blocking flows (Dinic, 1970). In exact integers.
class MaxFlow {
 public:
  static constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;
  using Node = std::uint32_t;
  using Arc = std::uint32_t;

  explicit MaxFlow(std::size_t nodes) : first_(nodes, kNone) {}

  Arc add(Node from, Node to, std::int64_t capacity);
  // Before another `run`: no flow, and then the capacities that differ.
  void clear_flow();
  void set_capacity(Arc arc, std::int64_t capacity);

  // The value of the flow, which is that of the smallest cut; kNoLimit where it is that or more.
  std::int64_t run(Node source, Node sink);
  // After `run`: is `node` on the source's side of the smallest cut that is nearest the source?
  bool with_source(Node node) const { return level_[node] != kNone; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Edge {
    Node to;
    Arc next;           // of the same node
    std::int64_t room;  // capacity left
  };

  bool find_levels(Node source, Node sink);
  std::int64_t push(Node source, Node sink);

  std::vector<Edge> edges_;  // an arc and its reverse side by side
  std::vector<Arc> first_;
  std::vector<Arc> current_;
  std::vector<std::uint32_t> level_;
  std::vector<Node> queue_;
  std::vector<Arc> path_;
  std::int64_t flow_ = 0;
};

}  // namespace reprise
