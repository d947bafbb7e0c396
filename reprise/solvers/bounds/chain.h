// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/bounds/box_program.h"

namespace reprise {

// The least that any plan inside a budget pays beside the base cost, as seen from several moments
// at once: the first runs of some ops, each an ancestor of the next.
//
// Between two moments, and after the last, an op runs or does not: for nothing where it may be its
// first run, at its cost where it has run before. It needs its inputs: each was kept over the
// moment before, or is made between the two. What is kept over a moment was kept over the one
// before, or made in between; and beside what the moment's op takes itself only so much is kept.
//
// Of all that, every run of moments one after another is a coarser view: over that time an op runs
// or does not, at no more than the sum of its runs. In whole numbers the finest view says it all;
// but where things are kept and run in part, half a value made early and half of it late would
// serve two halves of its reader, and each coarser view forbids some of that. So all of them are
// rows of one linear program, and branch and bound makes the numbers whole.
class Chain {
 public:
  // The ops run for the first time in this order, in any plan that matters; the budget is not below
  // what one takes by itself.
  Chain(const Graph& graph, Bytes budget, std::span<const OpId> ops);

  std::size_t size() const { return program_.size(); }  // what a step takes

  // No plan inside the budget pays less.
  Cost proven() const;
  // Is it as much as this chain can prove, or has the memory to?
  bool solved() const;

  // Goes on until `steps` were taken, and gives how many were. Plans that pay `below` or more are
  // of no interest. At first by prices alone; and then, unless `before_branching`, in whole
  // numbers.
  std::int64_t go_on(Cost below, std::int64_t steps, bool before_branching,
                     const std::function<bool()>& must_stop);
  bool is_branching() const;  // the first is done
  // What prices alone prove, about; to compare chains by.
  double by_prices() const { return by_prices_; }

 private:
  struct Part {
    Cost bound;
    BoxProgram::Fixed fixed;
    BoxProgram::State state;
    BoxProgram::Variable split;
  };
  struct ComesLater {
    bool operator()(const Part& a, const Part& b) const { return a.bound > b.bound; }
  };

  Cost rounded(Wide cost) const;
  std::int64_t look(Part part, std::int64_t steps, const std::function<bool()>& must_stop);

  BoxProgram program_;
  std::vector<double> weights_;  // of a variable: what it is about, as a cost
  std::int64_t step_ = 1;        // every cost is a multiple of it
  std::priority_queue<Part, std::vector<Part>, ComesLater> parts_;
  Cost below_;  // nothing was left out that pays less
  double by_prices_ = 0;
  std::int64_t steps_at_first_ = 0;  // before the first split
};

}  // namespace reprise
