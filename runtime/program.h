// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reprise::runtime {

// Where a tensor lies while a step runs. A value of the graph is a storage at one version; its
// tensors, each with sizes and strides of its own, are its slots.
using SlotId = std::int32_t;
using CallId = std::int32_t;
inline constexpr std::int32_t kNone = -1;
constexpr std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

template <class Element, class Wanted>
bool contains(const std::vector<Element>& all, const Wanted& wanted) {
  return std::ranges::find(all, wanted) != all.end();
}

// One argument of a call: a constant, a tensor, or a list of tensors. kNone stands for no tensor.
struct Argument {
  enum class Kind : std::uint8_t { constant, tensor, tensors, optional_tensors };
  Kind kind = Kind::constant;
  c10::IValue constant;
  std::vector<SlotId> slots;
};

// What one return of a call sets; kNone is dropped.
struct Result {
  bool is_list = false;
  std::vector<SlotId> slots;
};

// One torch operation, as it was recorded.
struct Call {
  explicit Call(c10::OperatorHandle handle) : op(std::move(handle)) {}

  c10::OperatorHandle op;
  std::optional<c10::OperatorHandle> plain;  // where `op` writes over its last argument: as eager
  std::vector<Argument> arguments;
  std::vector<Result> results;
  std::vector<std::int32_t> scratch;  // arguments that only its first run may write to
  std::vector<std::int32_t> unread;   // arguments whose bytes do not matter to it
  std::vector<std::int32_t> bumped;   // arguments, inputs of the step, that it changes for good
  bool random = false;                // draws from the default generator of `device`
  CallId replays = kNone;             // … as that call drew: the model itself runs it again
  CallId renewal = kNone;             // makes its first result again, from its others …
  std::vector<CallId> tail;           // … and does what these do, which follow it in its op
  c10::Device device = c10::kCPU;
  std::string where;  // for people: the op, its module and its line
};

// An output that is written over an input: `target` begins as the bytes of `source`.
struct Takeover {
  std::int32_t value;  // the source's
  SlotId source, target;
};

// An op of the graph: what it runs, in order.
struct Operation {
  std::vector<CallId> calls;
  std::vector<Takeover> takeovers;
  std::vector<std::int32_t> made;  // values
  std::vector<std::int32_t> read;
};

// What backward is handed for an output: nothing, or a tensor of these strides.
using Tangent = std::optional<std::vector<std::int64_t>>;

// A captured training step: forward and backward as calls, grouped into the ops of a graph, whose
// numbers values and operations have.
struct Program {
  std::vector<Call> calls;
  std::vector<Operation> operations;
  std::vector<std::vector<SlotId>> slots_of_value;
  std::vector<CallId> view_of_slot;  // the call that derives a slot from another of its value
  std::vector<std::int32_t> value_of_slot;  // or kNone: resident
  std::int32_t outside = kNone;  // the op between forward and backward, which the caller runs

  std::vector<SlotId> inputs;
  std::vector<std::pair<SlotId, at::Tensor>> constants;
  std::vector<SlotId> fresh;         // constants that the step changes: each step has its own
  std::vector<SlotId> remembered;    // inputs that forward reads and changes: as they were before
  std::vector<SlotId> outputs;       // kNone: no tensor
  std::vector<bool> differentiable;  // an output has a gradient function
  std::vector<SlotId> tangents;      // of the outputs that have one, in order
  std::vector<SlotId> gradients;     // of each input; kNone: none
  std::vector<bool> reached;         // by input: a gradient flows there, by some backward

  // An input, a constant or a view of one: there when the step begins, no value of the graph.
  bool is_resident(SlotId slot) const { return value_of_slot[at(slot)] == kNone; }
};

}  // namespace reprise::runtime
