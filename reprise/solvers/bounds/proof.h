// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reprise/core/graph.h"
#include "reprise/solvers/bounds/moments.h"
#include "reprise/solvers/bounds/smallest_peak.h"
#include "reprise/solvers/plan_order.h"
#include "reprise/solvers/techniques.h"

namespace reprise {

// What is proven of all plans whose peak stays inside a budget, whatever their order; more with
// every call of `go_on`.
class Proof {
 public:
  // `budget` is not below what an op takes by itself.
  Proof(const Graph& graph, Bytes budget, Techniques in_use);

  // Every such plan pays this beside the base cost.
  Cost extra() const { return extra_; }
  // There where no plan is inside the budget.
  const std::optional<PeakBound>& peak() const { return peak_; }

  // Looks at the moments that may prove more: each op's first run, by its cut, several of them at
  // once, and then each in whole values. `known` is the cheapest plan inside the budget so far, if
  // there is one: what it runs again after a moment is as much as that moment can prove, so that
  // most need no look. `other` is that or another plan, short of memory elsewhere perhaps: where it
  // is says which moments to look at together. Later calls try harder. Whenever `must_stop` ends
  // it, what it has is proven.
  void go_on(const PlanOrder* known, const PlanOrder* other,
             const std::function<bool()>& must_stop);

 private:
  struct OfMoment {
    OpId op;
    Cost most;                // no bound at this moment is larger
    std::optional<Cost> cut;  // by a price on bytes
    bool solved = false;
  };

  void learn_from(const PlanOrder& plan);
  void cut(OfMoment& moment);
  void make_whole(OfMoment& moment, std::int64_t nodes, const std::function<bool()>& must_stop);

  void look_at_each(const std::function<bool()>& must_stop);
  void look_at_several(const PlanOrder& known, const PlanOrder& other,
                       const std::function<bool()>& must_stop);

  const Graph& graph_;
  Bytes budget_;
  Techniques in_use_;
  std::vector<OfMoment> moments_;
  Moments together_;
  bool several_first_ = false;
  Cost extra_;
  std::optional<PeakBound> peak_;
  std::int64_t nodes_;
};

}  // namespace reprise
