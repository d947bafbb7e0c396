// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/solvers/checkmate/stages.h"

namespace reprise {

// Checkmate's terms (Jain et al., MLSys'20, section 4). A graph of T ops has T stages; stage t ends
// with the first run of op t. In a stage ops run by number, each at most once. An op stands for all
// its outputs; workspace, overwriting and kept values are unknown here: `simulate` the plan for
// those.

using StageMatrix = StageTable<OpId, char>;  // 0 or 1 for each stage and op

struct StageSchedule {
  StageMatrix computed;  // R: the op runs in the stage
  StageMatrix stored;    // S: its outputs are there when the stage begins
  friend bool operator==(const StageSchedule&, const StageSchedule&) = default;
};

// A graph as Checkmate sees it: one node an op, an edge where the second op reads an output of the
// first. Edges are single, neighbours in program order.
struct OpGraph {
  explicit OpGraph(const Graph& graph);

  std::size_t size() const { return costs.size(); }

  IdVector<OpId, std::vector<OpId>> before;  // whose outputs the op reads
  IdVector<OpId, std::vector<OpId>> after;   // that read its outputs
  IdVector<OpId, Bytes> bytes;               // of its outputs together
  IdVector<OpId, Cost> costs;
};

// Is op i's mirror image, T - 1 - i, its gradient, and the op in the middle the loss, as in what
// training_graph makes of ops with outputs? Checkpoints have a meaning in such graphs only.
bool is_mirrored(const Graph& graph);

// What is stored for the forward ops `checkpoints`, in program order, and the segments between
// them: the paper artifact's six rules. The graph is mirrored. O(T² + edges · T).
StageMatrix stored_from_checkpoints(const Graph& graph, std::span<const OpId> checkpoints);

// The fewest runs for what is stored: op t in stage t, what the next stage has and this one lacks,
// and whatever those miss. O(T · edges).
StageMatrix fewest_computed(const OpGraph& ops, const StageMatrix& stored);

// A schedule in Checkmate's own accounting.
struct StageReplay {
  Cost cost;
  Bytes peak;  // of activations: an op's inputs and outputs are all there while it runs
  std::size_t evaluations = 0;
};

// Runs the schedule as the paper artifact does: a value is freed where its stage begins or right
// after an op reads or makes it, once neither the next stage has it stored nor a later op of this
// stage reads it. A stored value that is not used in a stage stays for all of it. Throws
// std::logic_error where an op lacks an input.
StageReplay replay(const OpGraph& ops, const StageSchedule& schedule);

// The schedule that computes what the plan does; stored is what a later stage reads before it is
// made again, so that with plan_of(graph, computed) computes survive a round trip and frees come
// early. None where there is no such schedule: first runs out of program order, a run after the
// last first run, or an op twice in a stage.
std::optional<StageSchedule> stages_from_plan(const Graph& graph, const Plan& plan);

}  // namespace reprise
