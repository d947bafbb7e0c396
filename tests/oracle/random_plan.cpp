// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/random_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reprise/core/lifetimes.h"

namespace reprise::oracle {
namespace {

// Runs and frees at will, but never frees a value of an op that may not run again while anything is
// left to do: so it can always be completed.
class Walk {
 public:
  Walk(const Graph& graph, Random& random)
      : graph_(graph),
        random_(random),
        there_(graph.values().size(), false),
        has_run_(graph.ops().size(), false) {
    for (const ValueId value : graph.values()) there_[value] = graph.resident(value);
  }

  void wander(std::size_t steps) {
    wandering_ = true;
    for (; steps > 0; --steps) {
      if (random_.chance(60) && graph_.ops().size() > 0) {
        const OpId op{random_.below(graph_.ops().size())};
        if (can_run(op)) run(op);
      } else if (graph_.values().size() > 0) {
        const ValueId value{random_.below(graph_.values().size())};
        if (can_free(value)) free(value);
      }
    }
  }

  void complete() {
    wandering_ = false;
    for (const OpId op : graph_.ops()) {
      if (!has_run_[op]) bring(op);
    }
    for (const ValueId value : graph_.values()) {
      if (graph_.kept(value) && !there_[value]) bring(*graph_.producer(value));
    }
    for (const ValueId value : graph_.values()) {
      const bool left_over = there_[value] && !graph_.resident(value) && !graph_.kept(value);
      if (left_over && random_.chance(50)) free(value);
    }
  }

  Plan plan() && { return std::move(plan_); }

 private:
  bool can_run(OpId op) const {
    const auto inputs = graph_.inputs(op);
    return (!has_run_[op] || graph_.recomputable(op)) &&
           std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return bool{there_[v]}; });
  }
  bool can_free(ValueId value) const {
    return there_[value] && !graph_.resident(value) && graph_.recomputable(*graph_.producer(value));
  }
  void bring(OpId op) {
    for (const ValueId input : graph_.inputs(op)) {
      if (!there_[input]) bring(*graph_.producer(input));
    }
    run(op);
  }
  void run(OpId op) {
    plan_.steps.push_back(Step::compute(op));
    has_run_[op] = true;
    for (const ValueId output : graph_.outputs(op)) there_[output] = true;
    // An input that could have been overwritten is often freed at once.
    for (const ValueId output : graph_.outputs(op)) {
      if (!wandering_) break;
      const auto input = graph_.overwritten(output);
      if (input && can_free(*input) && random_.chance(50)) free(*input);
    }
  }
  void free(ValueId value) {
    plan_.steps.push_back(Step::free(value));
    there_[value] = false;
  }

  const Graph& graph_;
  Random& random_;
  ValueSet there_;
  OpSet has_run_;
  bool wandering_ = false;  // free to let values go that are needed again
  Plan plan_;
};

}  // namespace

Plan random_right_plan(const Graph& graph, Random& random) {
  Walk walk(graph, random);
  walk.wander(random.below(3 * graph.ops().size() + 1));
  walk.complete();
  Plan plan = std::move(walk).plan();
  if (random.chance(50)) return plan;
  std::vector<OpId> order;
  for (const Step step : plan.steps) {
    if (step.kind() == StepKind::compute) order.push_back(step.op());
  }
  return with_earliest_frees(graph, order);
}

Plan damaged(const Graph& graph, Plan plan, Random& random) {
  for (std::int64_t times = random.between(1, 2); times > 0 && !plan.steps.empty(); --times) {
    const auto at = plan.steps.begin() + random.below(plan.steps.size());
    switch (random.below(5)) {
      case 0: plan.steps.erase(at); break;
      case 1: plan.steps.insert(at, *at); break;
      case 2: std::iter_swap(at, plan.steps.begin() + random.below(plan.steps.size())); break;
      case 3: *at = Step::compute(OpId{random.below(graph.ops().size() + 1)}); break;
      default: *at = Step::free(ValueId{random.below(graph.values().size() + 1)}); break;
    }
  }
  return plan;
}

}  // namespace reprise::oracle
