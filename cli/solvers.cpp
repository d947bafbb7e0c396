// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/graph_args.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "cli/words.h"
#include "reprise/solvers/solver.h"

namespace reprise::cli {
namespace {

struct SolversArgs {
  GraphArgs graph;
  bool json = false;
};

ExitCode run(const SolversArgs& args) {
  std::optional<Graph> graph;
  if (args.graph.given()) graph = args.graph.load();
  const auto reason = [&](const Solver& solver) {
    return graph ? solver.supports({*graph, Budget{}}) : std::string();
  };
  if (args.json) {
    Json list = Json::array();
    for (const Solver& solver : solvers()) {
      Json entry;
      entry["name"] = solver.name;
      entry["summary"] = solver.summary;
      entry["paper"] = solver.paper.empty() ? Json(nullptr) : Json(solver.paper);
      if (graph) {
        entry["supports"] = reason(solver).empty();
        entry["reason"] = reason(solver).empty() ? Json(nullptr) : Json(reason(solver));
      }
      list.push_back(std::move(entry));
    }
    print(list);
    return done;
  }
  std::size_t widest = 0;
  for (const Solver& solver : solvers()) widest = std::max(widest, solver.name.size());
  for (const Solver& solver : solvers()) {
    fmt::print(
        "{}   {}{}{}\n", pad_right(solver.name, widest), solver.summary,
        solver.paper.empty() ? "" : fmt::format(" ({})", solver.paper),
        reason(solver).empty() ? "" : fmt::format("; not for this graph: {}", reason(solver)));
  }
  return done;
}

}  // namespace

Action add_solvers(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("solvers", "List the solvers, and which support a graph");
  const auto args = std::make_shared<SolversArgs>();
  args->graph.add_to(verb, false);
  verb.add_flag("--json", args->json, "Print a JSON array");
  return [args] { return run(*args); };
}

}  // namespace reprise::cli
