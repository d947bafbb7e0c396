// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/graph_args.h"
#include "reprise/core/graph.h"

namespace reprise::cli {

// A graph that solvers are run on.
struct Subject {
  std::string file;   // empty: the program made it
  std::string label;  // what tables call it
  Graph graph;
  Bytes base_peak;
};

Subject subject_of(Graph graph);  // one that the program made

// The graphs of files, of folders, which stand for the files in them by name, hidden ones left out,
// and of "-", standard input. Labels tell them apart.
std::vector<Subject> load_subjects(const std::vector<std::string>& paths, const ReadArgs& read);

}  // namespace reprise::cli
