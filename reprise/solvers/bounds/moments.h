// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/bounds/chain.h"
#include "reprise/solvers/plan_order.h"

namespace reprise {

// What several moments prove at once, where a plan says which: those at which it is short of
// memory. Begins with one moment and takes in another where that proves more by prices alone; then
// makes the numbers whole; and where that is done, takes in those that were left out.
class Moments {
 public:
  Moments(const Graph& graph, Bytes budget) : graph_(graph), budget_(budget) {}

  // No plan inside the budget pays less beside the base cost.
  Cost proven() const { return proven_; }

  // Looks where `plan` is short of memory; `first` is the moment to begin with. Looks for a bound
  // up to `below`, which a plan pays. Later calls try harder; once a chain has given all it has,
  // the next call begins another.
  void go_on(const PlanOrder& plan, Cost below, OpId first, const std::function<bool()>& must_stop);

 private:
  void find_candidates(const PlanOrder& plan, OpId first);
  std::vector<OpId> with(OpId op) const;
  void try_candidate(Cost below, std::int64_t& effort, const std::function<bool()>& must_stop);
  void make_whole(Cost below, std::int64_t& effort, const std::function<bool()>& must_stop);

  const Graph& graph_;
  Bytes budget_;
  Cost proven_;
  std::vector<OpId> ops_;  // of the chain
  std::optional<Chain> chain_;
  std::vector<OpId> candidates_;  // to take in, the most promising last
  std::vector<OpId> others_;      // to try after these, likewise
  std::vector<OpId> left_out_;    // that proved no more by prices, likewise
  OpSet seen_;                    // all of these
  std::optional<Chain> trial_;    // the chain with the last candidate in it
  std::int64_t effort_ = 0;       // of the call before
};

}  // namespace reprise
