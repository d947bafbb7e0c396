// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/report.h"
#include "cli/verbs.h"
#include "reprise/solvers/runs.h"

namespace reprise::cli {

// The parts of "a,b,c", each once. Throws InputError where one is empty; `what` is what they are.
std::vector<std::string> split_list(const std::string& text, std::string_view what);

// The solvers of "auto,store-all", or every one there is where it is "all".
std::vector<const Solver*> parse_solvers(const std::string& names);

// The fields of a run that `sweep` and `compare` both print.
void add_fields(Json& json, const Run& run, const Graph& graph);

// "unsupported" where the solver refused, else the status.
std::string_view status_word(const Run& run);

// "+12.3 %" over plain; the cost itself where plain costs nothing.
std::string overhead_words(Cost cost, const Graph& graph);
// The same of a run's plan, "infeasible" where that is proven, "none" where no plan was found, "–"
// where the solver refused.
std::string overhead_words(const Run& run, const Graph& graph);

// Runs that are done, kept in a file so that work which was ended goes on where it stopped: JSON
// lines, each with what its result depends on. Whatever differs (graph, solver, budget, limits,
// seed, techniques, whether it begins with a plan, version of the program) makes another run.
class RunStore {
 public:
  // Reads what is there. An empty path keeps nothing. Throws InputError where the file is something
  // else; a last line that was cut off is dropped.
  explicit RunStore(std::string path);

  const Run* find(const Task& task, const Limits& limits);
  void add(const Task& task, const Limits& limits, const Run& run);  // written at once

 private:
  Json key(const Task& task, const Limits& limits);

  std::string path_;
  std::map<const Graph*, std::string> problems_;  // a hash of each graph
  std::map<std::string, Run> runs_;               // by key
};

// Runs what the store lacks, on `threads` threads (where there are fewer runs, each has several),
// and gives all runs in the order of `tasks`; those that Ctrl-C (limits.stop) kept from running are
// missing. Shows progress.
std::vector<std::optional<Run>> run_missing(std::span<const Task> tasks, Limits limits, int threads,
                                            RunStore& store, std::string_view verb);

// Says on standard error that Ctrl-C left runs undone, where it did; how the verb then ends.
ExitCode ending(std::string_view verb, std::span<const std::optional<Run>> runs, bool kept);

}  // namespace reprise::cli
