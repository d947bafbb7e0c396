// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/formats/graph_formats.h"

namespace reprise::cli {

// How graphs are read.
class ReadArgs {
 public:
  void add_to(CLI::App& verb);
  Graph load(const std::string& path) const;

 private:
  std::string format_;
  std::string reads_ = "listed";
  bool source_gradients_ = false;
};

// The graph that a verb works on, and how to read it.
class GraphArgs {
 public:
  void add_to(CLI::App& verb, bool required = true);
  bool given() const { return !path_.empty(); }
  Graph load() const { return read_.load(path_); }

 private:
  std::string path_;
  ReadArgs read_;
};

// A plan file in terms of the graph, with what it claims.
struct LoadedPlan {
  std::string name;  // what messages call the file
  Plan plan;
  std::optional<Bytes> claimed_peak;
  std::optional<Cost> claimed_cost;
};
LoadedPlan load_plan(const std::string& path, const Graph& graph);

// For CLI11 to check an argument with: one of a few words, with the nearest where it is none; some
// text.
CLI::Validator one_of(std::vector<std::string> words);
std::string not_empty(const std::string& text);

// The formats that can be read, and those that can be written.
std::vector<std::string> read_format_names();
std::vector<std::string> write_format_names();
GraphFormat graph_format(const std::string& name);

}  // namespace reprise::cli
