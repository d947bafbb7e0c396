// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "cli/verbs.h"
#include "reprise/core/error.h"

namespace reprise::cli {
namespace {

struct Verb {
  CLI::App* app;
  Action action;
};

std::vector<Verb> add_verbs(CLI::App& app) {
  std::vector<Verb> verbs;
  for (const auto add :
       {add_plan, add_sweep, add_compare, add_bench, add_max_batch, add_check, add_simulate,
        add_diff, add_convert, add_schedule, add_solvers, add_completion}) {
    Action action = add(app);
    CLI::App* verb = app.get_subcommands({}).back();
    verb->group("Verbs");
    verbs.push_back({verb, std::move(action)});
  }
  return verbs;
}

std::vector<std::string_view> views(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

// "unknown verb 'paln' (did you mean 'plan'?)", where the first argument is none.
std::string unknown_verb(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == word) return "";
    names.push_back(verb->get_name());
  }
  return fmt::format("unknown verb {}{}", in_quotes(word), did_you_mean(word, views(names)));
}

// CLI11's complaint in our words, with the nearest option where one is unknown.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  for (const std::string& extra : app.remaining()) {
    if (extra.rfind('-', 0) != 0) return fmt::format("unexpected argument {}", in_quotes(extra));
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) names.push_back(option->get_name());
    const std::string name = extra.substr(0, extra.find('='));
    return fmt::format("unknown option {}{}", in_quotes(name), did_you_mean(name, views(names)));
  }
  return app.get_parent() == nullptr ? "want a verb" : error.what();
}

ExitCode run(int argc, char** argv) {
  CLI::App app(
      "Trains networks inside a memory budget: plans what to keep, what to compute again.");
  app.name("reprise");
  app.set_version_flag("--version", std::string("reprise ") + REPRISE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  const std::vector<Verb> verbs = add_verbs(app);
  app.footer(  // after the verbs, which would inherit it
      "reprise VERB --help tells more. Exit codes: 0 done, 1 our bug, 2 bad input, 3 no plan "
      "can fit,\n4 none found, 5 check: the plan breaks a rule.\n");

  if (argc > 1 && argv[1][0] != '-') {
    if (const std::string complaint = unknown_verb(app, argv[1]); !complaint.empty()) {
      fmt::print(stderr, "reprise: {}\n", complaint);
      return bad_input;
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    return done;
  } catch (const CLI::ParseError& error) {
    for (const Verb& verb : verbs) {
      if (!*verb.app) continue;
      fmt::print(stderr, "reprise {}: {} (see reprise {} --help)\n", verb.app->get_name(),
                 usage_error(*verb.app, error), verb.app->get_name());
      return bad_input;
    }
    fmt::print(stderr, "reprise: {} (see reprise --help)\n", usage_error(app, error));
    return bad_input;
  }
  for (const Verb& verb : verbs) {
    if (*verb.app) return verb.action();
  }
  return bad_input;
}

}  // namespace
}  // namespace reprise::cli

int main(int argc, char** argv) {
  using namespace reprise::cli;
  try {
    const ExitCode code = run(argc, argv);
    if (std::fflush(stdout) == 0) return code;
    throw std::system_error(errno, std::generic_category(), "can't write");
  } catch (const reprise::InputError& error) {
    fmt::print(stderr, "reprise: {}\n", error.what());
    return bad_input;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "reprise: out of memory\n");
    return bad_input;
  } catch (const std::exception& error) {
    const bool full = std::ferror(stdout) != 0;  // fmt throws where a write fails
    fmt::print(stderr, "reprise: {}: {}\n", full ? "<stdout>" : "our bug", error.what());
    return full ? bad_input : our_bug;
  }
}
