// SPDX-License-Identifier: Apache-2.0
#include "reprise/core/plan_from_kept.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reprise/core/lifetimes.h"
#include "reprise/core/topology.h"

namespace reprise {
namespace {

// Writes the order in which ops run. `there_` is what a value's next reader can count on; the frees
// are worked out from the finished order.
class Writer {
 public:
  Writer(const Graph& graph, const KeptValues& decision)
      : graph_(graph), decision_(decision), there_(graph.values().size(), false), missing_(graph) {
    for (const ValueId value : graph.values()) there_[value] = graph.resident(value);
  }

  void run(OpId op) {
    order_.push_back(op);
    for (const ValueId output : graph_.outputs(op)) there_[output] = true;
  }

  // Where the backward pass begins. Only what has run by then can be brought back.
  void let_go_of_what_is_not_kept() {
    if (!decision_.segments.empty()) collect_segments();
    for (const ValueId value : graph_.values()) {
      if (!there_[value] || graph_.resident(value)) continue;
      const OpId producer = *graph_.producer(value);
      there_[value] = decision_.kept[value] || graph_.phase(producer) != Phase::forward ||
                      !graph_.recomputable(producer) || graph_.bytes(value) == Bytes{0};
    }
  }

  // Computes again whatever `op` misses, and whatever that needs.
  void bring_back_inputs_of(OpId op) {
    const auto inputs = graph_.inputs(op);
    std::vector<ValueId> wanted(inputs.begin(), inputs.end());
    if (!members_.empty()) want_rest_of_segments(op, wanted);
    for (const OpId again : missing_.of(wanted, there_)) {
      for (const ValueId output : graph_.outputs(again)) {
        if (!there_[output]) brought_back_.push_back(output);
      }
      run(again);
    }
  }

  void let_go_of_what_was_brought_back() {
    for (const ValueId value : brought_back_) there_[value] = false;
    brought_back_.clear();
  }

  Plan finish() const { return with_earliest_frees(graph_, order_); }
  std::size_t computes() const { return order_.size(); }

 private:
  void collect_segments() {
    std::uint32_t segments = 0;
    for (const OpId op : order_) segments = std::max(segments, decision_.segments[op] + 1);
    members_.resize(segments);
    for (const OpId op : order_) {
      if (graph_.phase(op) == Phase::forward) members_[decision_.segments[op]].push_back(op);
    }
  }

  // Adds, for each segment that `wanted` lacks a value of, its values that are read by an op of the
  // program from `next` on. Each segment is gone through once.
  void want_rest_of_segments(OpId next, std::vector<ValueId>& wanted) {
    const std::size_t asked_for = wanted.size();
    for (std::size_t i = 0; i < asked_for; ++i) {
      if (there_[wanted[i]]) continue;
      const OpId producer = *graph_.producer(wanted[i]);
      for (const OpId op : std::exchange(members_[decision_.segments[producer]], {})) {
        for (const ValueId output : graph_.outputs(op)) {
          const auto readers = graph_.consumers(output);
          if (!readers.empty() && readers.back() >= next) wanted.push_back(output);
        }
      }
    }
  }

  const Graph& graph_;
  const KeptValues& decision_;
  ValueSet there_;
  MissingOps missing_;
  std::vector<std::vector<OpId>> members_;  // a segment: its ops, until they are brought back
  std::vector<ValueId> brought_back_;
  std::vector<OpId> order_;
};

}  // namespace

std::optional<Plan> plan_from_kept(const Graph& graph, const KeptValues& decision,
                                   const std::function<bool(OpId, std::size_t)>& keep_going) {
  if (!graph.has_phases()) throw std::logic_error("plan_from_kept needs a graph with phases");
  Writer writer(graph, decision);
  bool past_the_loss = false;
  for (const OpId op : graph.ops()) {
    if (!keep_going(op, writer.computes())) return std::nullopt;
    if (graph.phase(op) == Phase::backward && !std::exchange(past_the_loss, true)) {
      writer.let_go_of_what_is_not_kept();
    }
    writer.bring_back_inputs_of(op);
    writer.run(op);
    if (decision.stay == KeptValues::Stay::for_one_op) writer.let_go_of_what_was_brought_back();
  }
  return writer.finish();
}

Plan plan_from_kept(const Graph& graph, const KeptValues& decision) {
  return *plan_from_kept(graph, decision, [](OpId, std::size_t) { return true; });
}

}  // namespace reprise
