// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cli/graph_args.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "reprise/solvers/solver.h"

namespace reprise::cli {
namespace {

// What there is to complete, read off the program's own description of its arguments.
struct VerbWords {
  std::string name;
  std::string description;
  std::vector<std::string> options;
};

std::vector<VerbWords> verb_words(const CLI::App& app) {
  std::vector<VerbWords> words;
  for (const CLI::App* verb : app.get_subcommands({})) {
    VerbWords entry{verb->get_name(), verb->get_description(), {}};
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) entry.options.push_back("--" + name);
    }
    words.push_back(std::move(entry));
  }
  return words;
}

// The options whose argument is one of a few words.
std::vector<std::pair<std::string, std::string>> choices() {
  std::vector<std::string_view> names;
  for (const Solver& solver : solvers()) names.push_back(solver.name);
  std::vector<std::string_view> techniques;
  for (const TechniqueWords& known : kTechniques) techniques.push_back(known.name);
  return {{"--solver", fmt::format("{}", fmt::join(names, " "))},
          {"--solvers", fmt::format("all {}", fmt::join(names, " "))},
          {"--format", fmt::format("{}", fmt::join(read_format_names(), " "))},
          {"--to", fmt::format("{}", fmt::join(write_format_names(), " "))},
          {"--reads", "listed retained"},
          {"--objective", "time memory"},
          {"--without", fmt::format("{}", fmt::join(techniques, " "))}};
}

std::string bash(const std::vector<VerbWords>& verbs) {
  std::vector<std::string> names;
  for (const VerbWords& verb : verbs) names.push_back(verb.name);
  std::string out =
      "# bash completion for reprise: source <(reprise completion bash)\n"
      "_reprise() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  if [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  if [ \"$word\" = = ]; then word=; fi\n"
      "  COMPREPLY=()\n";
  out += fmt::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n    return\n  fi\n",
      fmt::join(names, " "));
  out += "  case $before in\n";
  for (const auto& [option, words] : choices()) {
    out += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n", option,
                       words);
  }
  out +=
      "  esac\n"
      "  case $word in\n"
      "    -*) ;;\n"
      "    *) local IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
      "  esac\n";
  out += "  case ${COMP_WORDS[1]} in\n";
  for (const VerbWords& verb : verbs) {
    out += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")) ;;\n", verb.name,
                       fmt::join(verb.options, " "));
  }
  out += "  esac\n}\ncomplete -o filenames -F _reprise reprise\n";
  return out;
}

std::string zsh(const std::vector<VerbWords>& verbs) {
  return "#compdef reprise\n# zsh completion for reprise: source <(reprise completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash(verbs);
}

std::string fish(const std::vector<VerbWords>& verbs) {
  std::string out = "# fish completion for reprise: reprise completion fish | source\n";
  for (const VerbWords& verb : verbs) {
    out += fmt::format("complete -c reprise -n __fish_use_subcommand -f -a {} -d '{}'\n", verb.name,
                       verb.description);
    for (const std::string& option : verb.options) {
      std::string words;
      for (const auto& [name, list] : choices()) {
        if (name == option) words = fmt::format(" -x -a '{}'", list);
      }
      out += fmt::format("complete -c reprise -n '__fish_seen_subcommand_from {}' -l {}{}\n",
                         verb.name, option.substr(2), words);
    }
  }
  return out;
}

}  // namespace

Action add_completion(CLI::App& app) {
  CLI::App& verb = *app.add_subcommand("completion", "Print a completion script for a shell");
  struct Args {
    std::string shell;
    bool json = false;
  };
  const auto args = std::make_shared<Args>();
  verb.add_option("SHELL", args->shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  verb.add_flag("--json", args->json, "Print one JSON object");
  return [args, &app] {
    const auto words = verb_words(app);
    const std::string script = args->shell == "fish"  ? fish(words)
                               : args->shell == "zsh" ? zsh(words)
                                                      : bash(words);
    if (args->json) {
      print(Json{{"shell", args->shell}, {"script", script}});
    } else {
      fmt::print("{}", script);
    }
    return done;
  };
}

}  // namespace reprise::cli
