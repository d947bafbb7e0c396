// SPDX-License-Identifier: Apache-2.0
#include "cli/graph_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reprise/formats/plan_json.h"

namespace reprise::cli {

std::vector<std::string> write_format_names() {
  std::vector<std::string> names;
  names.reserve(kGraphFormats.size());
  for (const GraphFormat format : kGraphFormats) names.emplace_back(to_string(format));
  return names;
}

std::vector<std::string> read_format_names() {
  std::vector<std::string> names = write_format_names();
  std::erase(names, to_string(GraphFormat::dot));
  return names;
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string list = fmt::format("{{{}}}", fmt::join(words, ","));
  const auto complaint = [words = std::move(words), list](const std::string& word) -> std::string {
    if (std::find(words.begin(), words.end(), word) != words.end()) return "";
    const std::vector<std::string_view> known(words.begin(), words.end());
    return fmt::format("{}{} is none of {}", in_quotes(word), did_you_mean(word, known), list);
  };
  return {complaint, list};
}

std::string not_empty(const std::string& text) { return text.empty() ? "want a name" : ""; }

GraphFormat graph_format(const std::string& name) {
  for (const GraphFormat format : kGraphFormats) {
    if (name == to_string(format)) return format;
  }
  throw std::logic_error("CLI11 let an unknown format through");
}

void ReadArgs::add_to(CLI::App& verb) {
  verb.add_option("--format", format_, "Its format; left out, the content tells")
      ->check(one_of(read_format_names()));
  verb.add_option("--reads", reads_, "Lower-set text: what backward reads, listed or retained")
      ->check(one_of({"listed", "retained"}));
  verb.add_flag("--source-gradients", source_gradients_,
                "Lower-set text: gradients of sources take bytes");
}

Graph ReadArgs::load(const std::string& path) const {
  LowerSetOptions options;
  if (reads_ == "retained") options.reads = LowerSetOptions::Reads::retained;
  options.source_gradients = source_gradients_;
  const auto format = format_.empty() ? std::nullopt : std::optional(graph_format(format_));
  return read_graph(read_text(path), format, options);
}

void GraphArgs::add_to(CLI::App& verb, bool required) {
  verb.add_option("GRAPH", path_, "A graph file, or - for standard input")->required(required);
  read_.add_to(verb);
}

LoadedPlan load_plan(const std::string& path, const Graph& graph) {
  const Text text = read_text(path);
  const PlanFile file = read_plan_json(text);
  return {text.name, resolve(file, graph, text.name), file.peak, file.cost};
}

}  // namespace reprise::cli
