// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reprise/core/error.h"
#include "reprise/core/graph.h"
#include "reprise/core/ids.h"

namespace reprise {

enum class StepKind : std::uint8_t { compute, free };

// One thing a plan does: run an op, or let a value go.
class Step {
 public:
  static constexpr Step compute(OpId op) { return {StepKind::compute, op.index}; }
  static constexpr Step free(ValueId value) { return {StepKind::free, value.index}; }

  constexpr StepKind kind() const { return kind_; }
  constexpr OpId op() const { return OpId{index_}; }           // of a compute
  constexpr ValueId value() const { return ValueId{index_}; }  // of a free
  friend constexpr bool operator==(Step, Step) = default;

 private:
  constexpr Step(StepKind kind, std::uint32_t index) : kind_(kind), index_(index) {}

  StepKind kind_;
  std::uint32_t index_;
};

// What to do, in order. Every solver returns this one type. It may be wrong: see `check`.
struct Plan {
  std::vector<Step> steps;
  friend bool operator==(const Plan&, const Plan&) = default;
};

// What makes a plan right, each by the way it can be broken.
enum class Rule : std::uint8_t {
  known_op,      // a step names an op of the graph
  known_value,   // … or a value of it
  runs_once,     // an op that may not run again runs once
  inputs_there,  // an op's inputs are all there when it runs
  frees_there,   // only a value that is there is freed
  frees_no_resident,
  every_op_runs,  // at the end every op has run
  kept_there,     // … and every kept value is there
};

// The first rule that a plan breaks. `step` is the plan's length where it shows at the end only.
struct Violation {
  Rule rule{};
  std::size_t step = 0;
  OpId op{};        // the op of the step, or the one that never ran
  ValueId value{};  // the value of the step, or the one that is not there
  friend bool operator==(const Violation&, const Violation&) = default;
};

// "steps[12]: 'relu' reads 'h', which is not there"
std::string describe(const Graph& graph, const Violation& violation);

// A plan that was expected to be right breaks a rule.
class PlanError : public InputError {
 public:
  PlanError(const Graph& graph, const Violation& broken)
      : InputError(describe(graph, broken)), violation(broken) {}

  Violation violation;
};

}  // namespace reprise
