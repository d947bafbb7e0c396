// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "reprise/core/graph.h"
#include "reprise/solvers/checkmate/stages.h"
#include "reprise/solvers/milp/milp.h"

namespace reprise {

// Which runs are asked for: op i in stage i for the first time (FULL_SCHEDULE); every op once, in
// any stage (COVER_ALL_NODES); every op whose outputs nobody reads (COVER_LAST_NODE). The last two
// have more plans, and far weaker relaxations.
enum class ImposedSchedule : std::uint8_t { full, cover_all, cover_last };

// A column of the program, or a number that the imposed schedule fixes.
class Cell {
 public:
  static constexpr Cell zero() { return Cell(-1); }
  static constexpr Cell one() { return Cell(-2); }
  static constexpr Cell column(std::int32_t number) { return Cell(number); }

  constexpr bool is_column() const { return code_ >= 0; }
  constexpr std::int32_t number() const { return code_; }
  friend constexpr bool operator==(Cell, Cell) = default;

 private:
  constexpr explicit Cell(std::int32_t code) : code_(code) {}
  std::int32_t code_;
};

// Checkmate's integer program for a graph and a budget, and what its columns stand for.
struct CheckmateModel {
  SparseModel program;
  StageTable<OpId, Cell> runs;     // R
  StageTable<ValueId, Cell> kept;  // S, on entry to a stage
  Cost fixed_cost;                 // of the runs that are no columns
  double unit = 1;        // cost (or bytes, where the peak is minimised) of 1 in the objective
  std::int64_t step = 1;  // every cost (or peak) is a multiple of this
};

// The program whose points are the plans in stages that the simulator says fit, to be minimised:
// their cost, or their peak where there is no budget. Sums are exact: a value is charged from where
// it is made, or from entry, to its last use in the stage or to the next stage; an overwritten
// input once with its output; workspace while its op runs. So the optimum of any relaxation bounds
// every plan in stages. Columns and rows: O(ops × (ops + edges)), those that the schedule fixes
// left out.
CheckmateModel checkmate_model(const Graph& graph, std::optional<Bytes> budget,
                               ImposedSchedule schedule = ImposedSchedule::full);

// What a point of the program says: of a cell, and of all that is kept, rounded up from `threshold`
// (in an integral point, 0.5).
double amount(Cell cell, std::span<const double> point);
StageKept rounded_kept(const CheckmateModel& model, std::span<const double> point,
                       double threshold);

// The least cost of a plan whose objective is at least `objective`: the next multiple of the step.
Cost cost_bound(const CheckmateModel& model, double objective);

// Whether building and solving checkmate_model takes no more than `memory`, by its size.
bool fits_memory(const Graph& graph, ImposedSchedule schedule, Bytes memory);

}  // namespace reprise
