// SPDX-License-Identifier: Apache-2.0
// Reading and writing: bytes are those of the file.
#include <benchmark/benchmark.h>

#include "benchmarks/graphs.h"
#include "reprise/core/lifetimes.h"
#include "reprise/formats/graph_json.h"
#include "reprise/formats/lower_set_text.h"
#include "reprise/formats/node_link.h"
#include "reprise/formats/plan_json.h"

namespace reprise::bench {
namespace {

constexpr std::size_t kOps = 100'000;

void count(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void parse_json(benchmark::State& state) {
  const Text text{"chain", write_graph_json(chain(kOps)), 1};
  for (auto _ : state) benchmark::DoNotOptimize(JsonDocument(text).root());
  count(state, text.content.size());
}
BENCHMARK(parse_json);

void read_graph_json(benchmark::State& state) {
  const Text text{"chain", write_graph_json(chain(kOps)), 1};
  for (auto _ : state) {
    benchmark::DoNotOptimize(reprise::read_graph_json(JsonDocument(text)).base_cost());
  }
  count(state, text.content.size());
}
BENCHMARK(read_graph_json);

void read_node_link(benchmark::State& state) {
  const Text text{"chain", write_node_link(chain(kOps)), 1};
  for (auto _ : state) {
    benchmark::DoNotOptimize(reprise::read_node_link(JsonDocument(text)).base_cost());
  }
  count(state, text.content.size());
}
BENCHMARK(read_node_link);

void read_lower_set_text(benchmark::State& state) {
  const Text text{"chain", write_lower_set_text(training_chain(kOps)), 1};
  for (auto _ : state) benchmark::DoNotOptimize(reprise::read_lower_set_text(text).base_cost());
  count(state, text.content.size());
}
BENCHMARK(read_lower_set_text);

Text plan_text(const Graph& graph) {
  return {"plan", write_plan_json(graph, base_run(graph), "store-all", Bytes{0}, Cost{0}), 1};
}

void read_plan_json(benchmark::State& state) {
  const Text text = plan_text(chain(kOps));
  for (auto _ : state) benchmark::DoNotOptimize(reprise::read_plan_json(text).steps.data());
  count(state, text.content.size());
}
BENCHMARK(read_plan_json);

void resolve_plan(benchmark::State& state) {
  const Graph& graph = chain(kOps);
  const Text text = plan_text(graph);
  const PlanFile file = reprise::read_plan_json(text);
  for (auto _ : state) benchmark::DoNotOptimize(resolve(file, graph, text.name).steps.data());
  count(state, text.content.size());
}
BENCHMARK(resolve_plan);

template <std::string (*write)(const Graph&)>
void write_graph(benchmark::State& state) {
  const Graph& graph = training_chain(kOps);
  for (auto _ : state) benchmark::DoNotOptimize(write(graph).data());
  count(state, write(graph).size());
}
BENCHMARK(write_graph<write_graph_json>)->Name("write_graph_json");
BENCHMARK(write_graph<write_node_link>)->Name("write_node_link");
BENCHMARK(write_graph<write_lower_set_text>)->Name("write_lower_set_text");

void write_plan_json(benchmark::State& state) {
  const Graph& graph = chain(kOps);
  const Plan plan = base_run(graph);
  const auto write = [&] {
    return reprise::write_plan_json(graph, plan, "store-all", Bytes{0}, Cost{0});
  };
  for (auto _ : state) benchmark::DoNotOptimize(write().data());
  count(state, write().size());
}
BENCHMARK(write_plan_json);

}  // namespace
}  // namespace reprise::bench
