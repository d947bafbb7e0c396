// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "reprise/core/graph.h"

namespace reprise {

// A stretch of the forward pass between two ops that part it, and what the backward pass does for
// it. Blocks with the same number for their `kind` are the same but for names: the ops at the same
// positions have the same costs, bytes and edges.
struct Block {
  std::vector<OpId> forward;
  std::vector<OpId> backward;
  std::size_t kind = 0;
};

struct BlockSize {
  std::size_t least_ops = 1;     // of the forward pass, in each block
  std::size_t most_blocks = 64;  // neighbours are taken together where there would be more
};

// A training graph as a chain of blocks, in forward order: the forward ops of all in turn, then
// their backward ops from the last block to the first, are a right order of all ops. What many
// forward ops far apart read parts no blocks. Empty where nothing parts the graph.
// O(blocks · ops + edges · log).
std::vector<Block> find_blocks(const Graph& graph, BlockSize size);

// A block by itself: its forward ops, one op that stands for all that comes in between, its
// backward ops, in this order. The op in between reads what later blocks read, makes what their
// backward ops hand back, and takes `workspace`. What comes from before the block is resident; what
// later ops read is kept.
Graph block_graph(const Graph& graph, const Block& block, Bytes workspace);

}  // namespace reprise
