// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/graph_args.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "reprise/core/batch.h"
#include "reprise/core/training_graph.h"

namespace reprise::cli {
namespace {

struct ConvertArgs {
  GraphArgs graph;
  std::string to = "reprise-graph";
  bool training = false;
  std::int64_t batch = 1;
  std::string output = "-";
  bool json = false;
};

ExitCode run(const ConvertArgs& args) {
  if (args.json && is_standard_output(args.output)) {
    throw InputError("--json needs --output: standard output can't take both");
  }
  Graph graph = args.graph.load();
  if (args.training) graph = training_graph(graph);
  if (args.batch != 1) graph = at_batch(graph, args.batch);
  write_text(args.output, write_graph(graph, graph_format(args.to)));
  if (args.json) {
    Json json;
    json["graph"] = graph.name();
    json["ops"] = graph.ops().size();
    json["values"] = graph.values().size();
    json["fingerprint"] = graph.fingerprint();
    json["to"] = args.to;
    json["output"] = args.output;
    print(json);
  }
  return done;
}

}  // namespace

Action add_convert(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("convert", "Write a graph in another format");
  const auto args = std::make_shared<ConvertArgs>();
  args->graph.add_to(verb);
  verb.add_option("--to", args->to, "The format to write (default reprise-graph)")
      ->check(one_of(write_format_names()));
  verb.add_flag("--training", args->training, "Add a loss and a backward pass to a forward graph");
  verb.add_option("--batch", args->batch, "Make a graph that is at batch 1 one at this batch")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""));
  verb.add_option("-o,--output", args->output, "The file to write (default standard output)")
      ->check(not_empty);
  verb.add_flag("--json", args->json, "Print one JSON object about what was written");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
