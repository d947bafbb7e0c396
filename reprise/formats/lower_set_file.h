// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reprise/core/units.h"
#include "reprise/formats/files.h"

namespace reprise {

// A text graph of the lower-set planner as it stands in the file: variables and functions by their
// numbers. Valid: ids are in range, a variable has one producer, nothing is cyclic, and each
// backward block matches its forward block.
struct LowerSetFile {
  using Variable = std::uint32_t;
  enum class Tag : std::uint8_t { gradient, input, output };
  enum class Reads : std::uint8_t { listed, retained };

  struct Read {
    Variable variable;
    Tag tag;
  };

  // A forward block and its backward block, which makes the gradients of `inputs`.
  struct Function {
    std::string type;
    std::size_t line = 0;  // where its block begins
    std::vector<Variable> inputs;
    std::vector<Variable> outputs;
    std::vector<Read> backward_lists;      // what the backward block lists
    std::vector<Variable> backward_reads;  // values: those listed, or those retained
    std::optional<std::int64_t> rank;

    Cost cost() const { return Cost{type.rfind("Conv", 0) == 0 ? 10 : 1}; }
  };

  std::vector<Bytes> bytes;  // a variable
  std::vector<Function> functions;
  std::vector<std::optional<std::uint32_t>> producers;  // a variable: its function; none: a source
  std::vector<std::uint32_t> readers;                   // a variable: how many functions read it
  std::vector<std::uint32_t> order;                     // functions by (rank, number), topological

  bool is_source(Variable variable) const { return !producers[variable].has_value(); }
};

// Accepts CRLF, blanks at line ends and a missing last newline. Throws InputError with the line.
LowerSetFile parse_lower_set_file(const Text& text,
                                  LowerSetFile::Reads reads = LowerSetFile::Reads::listed);

}  // namespace reprise
