// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reprise/core/graph.h"
#include "reprise/formats/files.h"
#include "reprise/formats/lower_set_file.h"

namespace reprise {

struct LowerSetOptions {
  // Which forward values a backward function reads: those its block lists, or those that its
  // attributes say are retained.
  using Reads = LowerSetFile::Reads;
  Reads reads = Reads::listed;
  bool source_gradients = false;  // do gradients of sources take bytes?
};

// The text graphs of the lower-set planner (Kusumoto et al., NeurIPS'19; pfnet-research/recompute),
// backward blocks included. Variable 3 becomes the value 'v3', its gradient 'g3' ('g3~1', … until
// its last contribution, each of which overwrites the one before), forward block 5 the op
// 'f5.ReLU', its backward one op for each variable that is no source ('b5.ReLU:g3') and one for all
// sources ('b5.ReLU:sources'). A sink's forward op makes the sink's gradient too, which has no
// bytes. Forward ops run by (rank, block), backward ops in reverse. Cost: 10 where the type begins
// with Conv, else 1; backward 0. See docs/formats.md.
//
// Accepts CRLF, blanks at line ends and a missing last newline. Throws InputError with the line.
Graph read_lower_set_text(const Text& text, const LowerSetOptions& options = {});

// The forward ops of a graph with phases, each with a backward block that reads what the ops whose
// gradient_of it is read (all of its inputs, where there are none). Each forward op makes one value
// with bytes, has no workspace, overwrites nothing and may run again, or InputError is thrown.
// Costs and everything else about backward ops are left out: the format has no place for them.
std::string write_lower_set_text(const Graph& graph);

}  // namespace reprise
