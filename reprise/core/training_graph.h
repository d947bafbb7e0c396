// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reprise/core/graph.h"

namespace reprise {

// What a backward op reads besides the gradients of the values made from its own.
struct BackwardReads {
  bool inputs = false;       // the forward op's inputs
  bool outputs = true;       // its outputs
  bool next_outputs = true;  // the outputs of the ops that read its outputs
};

struct BackwardRules {
  BackwardReads reads;
  std::int64_t cost_factor = 2;  // cost of a backward op, in costs of its forward op
  Bytes loss_bytes{4};
};

// Adds a loss and a backward pass to a forward graph, by the rules of Checkmate (Jain et al.,
// MLSys'20): an op 'loss' of no cost reads the outputs that nobody reads; then, in reverse program
// order, one backward op for each forward op makes a gradient as large as each of its outputs, from
// the values in `rules.reads` and the gradients of the ops that read its outputs (the loss, where
// none does). It has the forward op's workspace. Ops without outputs get no backward op, resident
// values no gradient.
//
// Throws InputError where the graph has phases other than forward, or names end up taken.
Graph training_graph(const Graph& forward, const BackwardRules& rules = {});

}  // namespace reprise
