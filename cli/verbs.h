// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace reprise::cli {

// Exit codes: the same for every verb.
enum ExitCode : int {
  done = 0,
  our_bug = 1,
  bad_input = 2,   // also usage, and a solver that does not support the graph
  infeasible = 3,  // proven: no plan can fit
  none_found = 4,  // the method's best does not fit, or a limit was reached
  rule_broken = 5,
};

// What a verb does once its arguments are read.
using Action = std::function<ExitCode()>;

// Each adds a subcommand to `app`.
Action add_plan(CLI::App& app);
Action add_sweep(CLI::App& app);
Action add_compare(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_max_batch(CLI::App& app);
Action add_check(CLI::App& app);
Action add_simulate(CLI::App& app);
Action add_diff(CLI::App& app);
Action add_convert(CLI::App& app);
Action add_schedule(CLI::App& app);
Action add_solvers(CLI::App& app);
Action add_completion(CLI::App& app);

}  // namespace reprise::cli
