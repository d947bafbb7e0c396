// SPDX-License-Identifier: Apache-2.0
// The core: items are steps of the plan at hand, or ops of the graph.
#include <benchmark/benchmark.h>

#include "benchmarks/graphs.h"
#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"

namespace reprise::bench {
namespace {

void count(benchmark::State& state, std::size_t items) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(items));
}

std::size_t size_of(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}

void simulate_base_run(benchmark::State& state) {
  const Graph& graph = chain(size_of(state));
  const Plan plan = base_run(graph);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan).peak);
  count(state, plan.steps.size());
}
BENCHMARK(simulate_base_run)->Arg(1'000)->Arg(100'000)->Arg(1'000'000);

void simulate_recomputing(benchmark::State& state) {
  const Graph& graph = training_chain(size_of(state));
  const Plan& plan = recomputing_plan(size_of(state));
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan).peak);
  count(state, plan.steps.size());
}
BENCHMARK(simulate_recomputing)->Arg(1'000)->Arg(100'000);

void check_base_run(benchmark::State& state) {
  const Graph& graph = chain(size_of(state));
  const Plan plan = base_run(graph);
  for (auto _ : state) benchmark::DoNotOptimize(check(graph, plan).peak);
  count(state, plan.steps.size());
}
BENCHMARK(check_base_run)->Arg(100'000);

void check_recomputing(benchmark::State& state) {
  const Graph& graph = training_chain(size_of(state));
  const Plan& plan = recomputing_plan(size_of(state));
  for (auto _ : state) benchmark::DoNotOptimize(check(graph, plan).peak);
  count(state, plan.steps.size());
}
BENCHMARK(check_recomputing)->Arg(100'000);

void make_base_run(benchmark::State& state) {
  const Graph& graph = chain(size_of(state));
  for (auto _ : state) benchmark::DoNotOptimize(base_run(graph).steps.data());
  count(state, base_run(graph).steps.size());
}
BENCHMARK(make_base_run)->Arg(100'000);

void plan_from_kept_by_segment(benchmark::State& state) {
  const Graph& graph = training_chain(size_of(state));
  const KeptValues decision = keep_square_root(graph);
  for (auto _ : state) benchmark::DoNotOptimize(plan_from_kept(graph, decision).steps.data());
  count(state, recomputing_plan(size_of(state)).steps.size());
}
BENCHMARK(plan_from_kept_by_segment)->Arg(100'000);

void fingerprint(benchmark::State& state) {
  const Graph& graph = chain(size_of(state));
  for (auto _ : state) benchmark::DoNotOptimize(graph.fingerprint().data());
  count(state, graph.ops().size());
}
BENCHMARK(fingerprint)->Arg(100'000);

void name_index(benchmark::State& state) {
  const Graph& graph = chain(size_of(state));
  for (auto _ : state) benchmark::DoNotOptimize(NameIndex(graph).op("input"));
  count(state, graph.ops().size());
}
BENCHMARK(name_index)->Arg(100'000);

}  // namespace
}  // namespace reprise::bench
