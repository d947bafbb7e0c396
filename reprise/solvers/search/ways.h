// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/search/blocks.h"

namespace reprise {

// One way through a block: its forward ops, whatever later blocks do in between, its backward ops,
// with runs again anywhere. Ops are positions in the block's graph.
struct Way {
  std::vector<std::uint32_t> before;
  std::vector<std::uint32_t> after;
  Bytes peak_before;
  Bytes peak_after;
  Bytes held;  // in between
  Cost again;  // of what runs again
};

// Ways through blocks of one kind, from what holds all to what holds little, and from what needs no
// run again to what has a small peak: by cuts, at a grid of both.
class Ways {
 public:
  Ways(const Graph& graph, const Block& block, const std::function<bool()>& must_stop);

  const std::vector<Way>& all() const { return all_; }

  // Forward alone, for nothing but the next block.
  struct Pass {
    Bytes peak;
    Bytes held;   // after it: what is handed on …
    Bytes stays;  // … and of that what can't be made again
  };
  const Pass& pass() const { return pass_; }

 private:
  void add(const Graph& alone, const std::vector<OpId>& order);
  void add_pass(const Graph& alone);
  void add_cuts(const Graph& graph, const Block& block, const Graph& alone,
                const std::function<bool()>& must_stop);
  void keep_the_good();

  OpId between_;
  std::vector<Way> all_;
  Pass pass_;
};

}  // namespace reprise
