// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"

namespace reprise {

// One entry a stage and id.
template <class IdType, class T>
class StageTable {
 public:
  StageTable() = default;
  StageTable(std::size_t stages, std::size_t ids, T initial)
      : stages_(stages), ids_(ids), entries_(stages * ids, initial) {}

  T& at(std::size_t stage, IdType id) { return entries_[stage * ids_ + id.index]; }
  const T& at(std::size_t stage, IdType id) const { return entries_[stage * ids_ + id.index]; }
  std::size_t stages() const { return stages_; }
  IdRange<IdType> ids() const { return IdRange<IdType>(ids_); }
  friend bool operator==(const StageTable&, const StageTable&) = default;

 private:
  std::size_t stages_ = 0;
  std::size_t ids_ = 0;
  std::vector<T> entries_;
};

// Checkmate's two matrices (Jain et al., MLSys'20, section 4). A plan is cut into as many stages as
// there are ops; in a stage ops run in program order, each at most once.
using StageRuns = StageTable<OpId, char>;     // R: the op runs in the stage
using StageKept = StageTable<ValueId, char>;  // S: the value is there on entry to the stage

// The fewest runs with which op i runs in stage `first_stages[i]` at least, and what is needed of a
// stage before comes from there where `kept` says so, else is computed again. Entries of `kept`
// that nobody needs change nothing; values of ops that may not run again stay as long as they are
// needed, whatever `kept` says. With op i in stage i the result is a right plan. O(stages × (ops +
// edges)).
StageRuns fewest_runs(const Graph& graph, const StageKept& kept,
                      std::span<const std::size_t> first_stages);

// The stages of the default: op i runs for the first time in stage i.
std::vector<std::size_t> one_op_a_stage(const Graph& graph);

// The plan that runs stage after stage and frees at the earliest moment.
Plan plan_of(const Graph& graph, const StageRuns& runs);

// What is there on entry to each stage of a right plan, where a stage ends with the first run of an
// op. None where first runs do not come in program order.
std::optional<StageKept> kept_of(const Graph& graph, const Plan& plan);

}  // namespace reprise
