// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/max_flow.h"

#include <algorithm>

namespace reprise {

MaxFlow::Arc MaxFlow::add(Node from, Node to, std::int64_t capacity) {
  const auto arc = static_cast<Arc>(edges_.size());
  edges_.push_back({to, first_[from], capacity});
  first_[from] = arc;
  edges_.push_back({from, first_[to], 0});
  first_[to] = arc + 1;
  return arc;
}

void MaxFlow::set_capacity(Arc arc, std::int64_t capacity) { edges_[arc].room = capacity; }

void MaxFlow::clear_flow() {
  for (Arc arc = 0; arc < edges_.size(); arc += 2) {
    edges_[arc].room += edges_[arc + 1].room;
    edges_[arc + 1].room = 0;
  }
  flow_ = 0;
}

bool MaxFlow::find_levels(Node source, Node sink) {
  level_.assign(first_.size(), kNone);
  queue_.clear();
  queue_.push_back(source);
  level_[source] = 0;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const Node node = queue_[i];
    for (Arc arc = first_[node]; arc != kNone; arc = edges_[arc].next) {
      const Node to = edges_[arc].to;
      if (edges_[arc].room == 0 || level_[to] != kNone) continue;
      level_[to] = level_[node] + 1;
      queue_.push_back(to);
    }
  }
  return level_[sink] != kNone;
}

// A blocking flow: walks from the source along the levels; where it can't go on, the last arc is
// done with; at the sink it sends what the path takes and goes back to the arc that is full.
std::int64_t MaxFlow::push(Node source, Node sink) {
  current_ = first_;
  path_.clear();
  std::int64_t sent = 0;
  Node node = source;
  while (true) {
    if (node == sink) {
      std::int64_t amount = kNoLimit;
      for (const Arc arc : path_) amount = std::min(amount, edges_[arc].room);
      std::size_t keep = path_.size();
      for (std::size_t i = path_.size(); i-- > 0;) {
        edges_[path_[i]].room -= amount;
        edges_[path_[i] ^ 1].room += amount;
        if (edges_[path_[i]].room == 0) keep = i;
      }
      sent += amount;
      if (sent >= kNoLimit) return sent;
      node = edges_[path_[keep] ^ 1].to;
      path_.resize(keep);
    }
    Arc& arc = current_[node];
    while (arc != kNone && (edges_[arc].room == 0 || level_[edges_[arc].to] != level_[node] + 1)) {
      arc = edges_[arc].next;
    }
    if (arc != kNone) {
      path_.push_back(arc);
      node = edges_[arc].to;
    } else if (node == source) {
      return sent;
    } else {
      level_[node] = kNone - 1;  // a dead end
      node = edges_[path_.back() ^ 1].to;
      path_.pop_back();
    }
  }
}

std::int64_t MaxFlow::run(Node source, Node sink) {
  while (flow_ < kNoLimit && find_levels(source, sink)) flow_ += push(source, sink);
  return std::min(flow_, kNoLimit);
}

}  // namespace reprise
