// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/formats/graph_json.h"

// What the fuzz targets ask of any input: no crash, no exception but InputError, and these.
namespace reprise::fuzz {

inline void require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", claim);
  std::abort();
}

inline Text as_text(const std::uint8_t* data, std::size_t size) {
  return {"input", std::string(data, data + size), 1};
}

// What `action` gives; none where it throws InputError.
template <class Action>
auto unless_refused(Action action) -> std::optional<decltype(action())> {
  try {
    return action();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// `check` and `simulate` say the same of a plan: the same rule broken at the same place, or the
// same peak and cost.
inline void require_agreement(const Graph& graph, const Plan& plan) {
  const Verdict verdict = check(graph, plan);
  try {
    const Replay replay = simulate(graph, plan);
    require(!verdict.broken, "what simulate replays, check passes");
    require(replay.peak == verdict.peak, "simulate and check find the same peak");
    require(replay.cost == verdict.cost, "simulate and check find the same cost");
    if (!replay.peak_step) return;
    Bytes alive = graph.workspace(plan.steps[*replay.peak_step].op());
    for (const ValueId value : alive_during(graph, plan, *replay.peak_step)) {
      alive += graph.bytes(value);
    }
    require(alive <= replay.peak, "what is alive at the peak is in the peak");
  } catch (const PlanError& error) {
    require(verdict.broken == error.violation, "check and simulate find the same rule broken");
  }
}

inline void require_right_base_run(const Graph& graph) {
  const Plan plan = base_run(graph);
  require(!check(graph, plan).broken, "the base run is right");
  require_agreement(graph, plan);
}

inline void require_same_op(const Graph& a, const Graph& b, OpId op) {
  require(a.name(op) == b.name(op) && a.kind(op) == b.kind(op), "an op is called as before");
  require(a.cost(op) == b.cost(op), "an op costs what it did");
  require(a.recomputable(op) == b.recomputable(op), "an op may run as often as before");
  require(a.gradient_of(op) == b.gradient_of(op), "an op is the gradient of the same op");
  require(!a.has_phases() || a.phase(op) == b.phase(op), "an op has the same phase");
}

// Two graphs are the same in all they say.
inline void require_same(const Graph& a, const Graph& b) {
  require(a.fingerprint() == b.fingerprint(), "the fingerprint is the same");
  require(a.name() == b.name() && a.cost_unit() == b.cost_unit(), "the graph is called as before");
  require(a.has_phases() == b.has_phases(), "there are phases where there were");
  for (const ValueId value : a.values()) {
    require(a.kept(value) == b.kept(value), "what was kept is kept");
  }
  for (const OpId op : a.ops()) require_same_op(a, b, op);
}

// A graph that was read: it survives being written and read again, and its base run is right.
inline void require_sound(const Graph& graph) {
  const std::string written = write_graph_json(graph);
  const auto again = unless_refused([&] {
    return read_graph_json(JsonDocument(Text{"written", written, 1}));
  });
  require(again.has_value(), "what write_graph_json writes is read");
  require_same(graph, *again);
  require_right_base_run(graph);
}

// `write` refuses a graph, or what it writes is read by `read` and written just so again. Returns
// the graph that was read.
template <class Write, class Read>
std::optional<Graph> require_fixed_point(const Graph& graph, Write write, Read read) {
  const auto written = unless_refused([&] { return write(graph); });
  if (!written) return std::nullopt;
  auto again = unless_refused([&] { return read(Text{"written", *written, 1}); });
  require(again.has_value(), "what was written is read");
  const auto rewritten = unless_refused([&] { return write(*again); });
  require(rewritten == written, "what was read is written as it was");
  return again;
}

}  // namespace reprise::fuzz
