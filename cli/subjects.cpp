// SPDX-License-Identifier: Apache-2.0
#include "cli/subjects.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "reprise/core/simulator.h"

namespace reprise::cli {
namespace {

std::vector<std::string> files_of(const std::string& path) {
  if (path == "-" || !std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const bool hidden = entry.path().filename().string().front() == '.';
    if (entry.is_regular_file() && !hidden) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw InputError(fmt::format("{}: no files in this folder", path));
  return files;
}

// The file's name without what it ends with; the whole path where two have the same.
void label(std::vector<Subject>& subjects) {
  const auto stem = [](const Subject& subject) {
    return subject.file == "-" ? std::string("standard input")
                               : std::filesystem::path(subject.file).stem().string();
  };
  for (Subject& subject : subjects) {
    const auto same = std::count_if(subjects.begin(), subjects.end(), [&](const Subject& other) {
      return stem(other) == stem(subject);
    });
    subject.label = printable(same == 1 ? stem(subject) : subject.file, 200);
  }
}

}  // namespace

Subject subject_of(Graph graph) {
  const Bytes peak = base_peak(graph);
  std::string name = graph.name();
  return {"", std::move(name), std::move(graph), peak};
}

std::vector<Subject> load_subjects(const std::vector<std::string>& paths, const ReadArgs& read) {
  std::vector<Subject> subjects;
  for (const std::string& path : paths) {
    for (const std::string& file : files_of(path)) {
      subjects.push_back(subject_of(read.load(file)));
      subjects.back().file = file;
    }
  }
  label(subjects);
  return subjects;
}

}  // namespace reprise::cli
