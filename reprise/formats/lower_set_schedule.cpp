// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/lower_set_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace reprise {
namespace {

using Variable = LowerSetFile::Variable;
using Function = LowerSetFile::Function;
using Tag = LowerSetFile::Tag;
using Kind = LowerSetCommand::Kind;

// Variables in reverse postorder of a depth-first search from 0, 1, …, edges as functions and
// their inputs list them.
std::vector<Variable> reverse_postorder(const LowerSetFile& file) {
  std::vector<std::vector<Variable>> successors(file.bytes.size());
  for (const Function& function : file.functions) {
    for (const Variable input : function.inputs) {
      successors[input].insert(successors[input].end(), function.outputs.begin(),
                               function.outputs.end());
    }
  }
  std::vector<Variable> order;
  std::vector<bool> seen(file.bytes.size(), false);
  std::vector<std::pair<Variable, std::size_t>> path;  // a variable, and its next successor
  for (Variable start = 0; start < file.bytes.size(); ++start) {
    if (seen[start]) continue;
    seen[start] = true;
    path.emplace_back(start, 0);
    while (!path.empty()) {
      auto& [variable, next] = path.back();
      if (next == successors[variable].size()) {
        order.push_back(variable);
        path.pop_back();
        continue;
      }
      const Variable successor = successors[variable][next++];
      if (seen[successor]) continue;
      seen[successor] = true;
      path.emplace_back(successor, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// Functions in the order of the first of their outputs to come.
std::vector<std::uint32_t> function_order(const LowerSetFile& file) {
  std::vector<std::uint32_t> order;
  std::vector<bool> taken(file.functions.size(), false);
  for (const Variable variable : reverse_postorder(file)) {
    const auto producer = file.producers[variable];
    if (!producer || taken[*producer]) continue;
    taken[*producer] = true;
    order.push_back(*producer);
  }
  return order;
}

class Writer {
 public:
  Writer(const LowerSetFile& file, std::span<const std::uint32_t> segments)
      : file_(file),
        segments_(segments),
        live_(file.bytes.size(), false),
        was_run_(file.functions.size(), false),
        last_reader_(segments.begin(), segments.end()),
        first_read_(file.functions.size(), UINT32_MAX),
        first_beside_(file.functions.size(), UINT32_MAX) {
    find_reach();
    sort_into_segments(function_order(file));
  }

  std::vector<LowerSetCommand> write() {
    for (const auto& functions : forward_) {
      compute_missing(functions);
      const auto kept = [&](std::uint32_t f) { return last_reader_[f] > segments_[f]; };
      std::set<Variable> made = outputs_of(functions);
      forget_values(made, kept);
    }
    for (auto i = static_cast<std::uint32_t>(forward_.size()); i-- > 0;) {
      compute_missing(forward_[i]);
      for (const std::uint32_t function : backward_[i]) run_backward(function, i);
      const std::set<Variable> made = outputs_of(forward_[i]);
      values_.insert(made.begin(), made.end());
      gradients_.insert(made.begin(), made.end());
      forget_values(values_, [&](std::uint32_t f) { return first_beside_[f] < i; });
      forget_gradients([&](std::uint32_t f) { return first_read_[f] < i; });
    }
    return std::move(commands_);
  }

 private:
  void find_reach() {
    const auto producers = [&](std::uint32_t number, auto action) {
      for (const Variable input : file_.functions[number].inputs) {
        if (const auto from = file_.producers[input]) action(*from);
      }
    };
    for (std::uint32_t number = 0; number < file_.functions.size(); ++number) {
      producers(number, [&](std::uint32_t from) {
        last_reader_[from] = std::max(last_reader_[from], segments_[number]);
        first_read_[number] = std::min(first_read_[number], segments_[from]);
      });
    }
    for (std::uint32_t number = 0; number < file_.functions.size(); ++number) {
      producers(number, [&](std::uint32_t from) {
        first_beside_[from] = std::min(first_beside_[from], first_read_[number]);
      });
    }
  }

  // Forward functions go into their own segment, backward functions, in reverse, into the segments
  // of the variables whose gradients they make; where those are all sources, into their own.
  void sort_into_segments(const std::vector<std::uint32_t>& order) {
    std::uint32_t count = 0;
    for (const std::uint32_t segment : segments_) count = std::max(count, segment + 1);
    forward_.resize(count);
    backward_.resize(count);
    for (const std::uint32_t number : order) forward_[segments_[number]].push_back(number);
    for (std::size_t at = order.size(); at-- > 0;) {
      const std::uint32_t number = order[at];
      std::set<std::uint32_t> into;
      for (const Variable input : file_.functions[number].inputs) {
        if (const auto from = file_.producers[input]) into.insert(segments_[*from]);
      }
      const bool makes_any = !file_.functions[number].inputs.empty();
      if (into.empty() && makes_any) into.insert(segments_[number]);
      for (const std::uint32_t segment : into) backward_[segment].push_back(number);
    }
  }

  std::set<Variable> outputs_of(const std::vector<std::uint32_t>& functions) const {
    std::set<Variable> outputs;
    for (const std::uint32_t number : functions) {
      outputs.insert(file_.functions[number].outputs.begin(),
                     file_.functions[number].outputs.end());
    }
    return outputs;
  }

  // Are all the outputs of a function there, or none? Never some.
  bool is_live(std::uint32_t function) const {
    return live_[file_.functions[function].outputs.front()];
  }

  void compute_missing(const std::vector<std::uint32_t>& functions) {
    for (const std::uint32_t number : functions) {
      if (is_live(number)) continue;
      commands_.push_back({Kind::forward, number, {}});
      for (const Variable output : file_.functions[number].outputs) live_[output] = true;
    }
  }

  template <class Keep>
  void forget_values(std::set<Variable>& among, Keep keep) {
    std::erase_if(among, [&](Variable variable) {
      if (keep(*file_.producers[variable])) return false;
      commands_.push_back({Kind::forget_value, variable, {}});
      live_[variable] = false;
      return true;
    });
  }

  template <class Keep>
  void forget_gradients(Keep keep) {
    std::erase_if(gradients_, [&](Variable variable) {
      if (keep(*file_.producers[variable])) return false;
      commands_.push_back({Kind::forget_gradient, variable, {}});
      return true;
    });
  }

  void run_backward(std::uint32_t number, std::uint32_t segment) {
    const Function& function = file_.functions[number];
    LowerSetCommand command{Kind::backward, number, {}};
    for (std::uint32_t j = 0; j < function.inputs.size(); ++j) {
      const auto from = file_.producers[function.inputs[j]];
      if (from ? segments_[*from] == segment : !was_run_[number]) command.positions.push_back(j);
    }
    was_run_[number] = true;
    const bool reads_output =
        std::any_of(function.backward_lists.begin(), function.backward_lists.end(),
                    [](const LowerSetFile::Read& read) { return read.tag == Tag::output; });
    const bool is_gone = reads_output && !is_live(number);
    if (is_gone) commands_.push_back({Kind::forward, number, {}});
    commands_.push_back(std::move(command));
    if (!is_gone) return;
    for (const Variable output : function.outputs) {
      commands_.push_back({Kind::forget_value, output, {}});
    }
  }

  const LowerSetFile& file_;
  std::span<const std::uint32_t> segments_;  // of a function, as all that follow
  std::vector<bool> live_;                   // but this, of a variable: is its value there?
  std::vector<bool> was_run_;                // its backward
  std::vector<std::uint32_t> last_reader_;   // the last segment that reads it, its own at least
  std::vector<std::uint32_t> first_read_;    // the first segment that it reads from
  std::vector<std::uint32_t> first_beside_;  // … that one of its readers reads from
  std::vector<std::vector<std::uint32_t>> forward_;   // a segment: its forward functions
  std::vector<std::vector<std::uint32_t>> backward_;  // … and the backward ones to run in it
  std::set<Variable> values_;     // there in the backward phase, of this segment or a later one
  std::set<Variable> gradients_;  // likewise
  std::vector<LowerSetCommand> commands_;
};

// Calls `value` or `gradient` with each item that a compute reads or writes.
template <class Value, class Gradient>
void for_each_item(const LowerSetFile& file, const LowerSetCommand& compute, Value value,
                   Gradient gradient) {
  const Function& function = file.functions[compute.number];
  if (compute.kind == Kind::forward) {
    for (const Variable input : function.inputs) value(input);
    for (const Variable output : function.outputs) value(output);
    return;
  }
  for (const LowerSetFile::Read& read : function.backward_lists) {
    read.tag == Tag::gradient ? gradient(read.variable) : value(read.variable);
  }
  for (const std::uint32_t j : compute.positions) gradient(function.inputs[j]);
}

bool is_compute(const LowerSetCommand& command) {
  return command.kind == Kind::forward || command.kind == Kind::backward;
}

}  // namespace

std::vector<LowerSetCommand> lower_set_schedule(const LowerSetFile& file,
                                                std::span<const std::uint32_t> segments) {
  return Writer(file, segments).write();
}

std::vector<LowerSetCommand> with_early_forgets(const LowerSetFile& file,
                                                std::span<const LowerSetCommand> schedule) {
  // Place 0 is the very start, place n right behind the nth compute.
  std::vector<const LowerSetCommand*> computes{nullptr};
  std::vector<std::vector<const LowerSetCommand*>> forgets(1);
  std::vector<std::size_t> value_touched(file.bytes.size(), 0);
  std::vector<std::size_t> gradient_touched(file.bytes.size(), 0);
  for (const LowerSetCommand& command : schedule) {
    if (is_compute(command)) {
      const std::size_t place = computes.size();
      computes.push_back(&command);
      forgets.emplace_back();
      for_each_item(
          file, command, [&](Variable v) { value_touched[v] = place; },
          [&](Variable v) { gradient_touched[v] = place; });
    } else {
      const auto& touched = command.kind == Kind::forget_value ? value_touched : gradient_touched;
      forgets[touched[command.number]].push_back(&command);
    }
  }
  std::vector<LowerSetCommand> early;
  early.reserve(schedule.size());
  for (std::size_t place = 0; place < computes.size(); ++place) {
    if (computes[place] != nullptr) early.push_back(*computes[place]);
    for (std::size_t i = forgets[place].size(); i-- > 0;) early.push_back(*forgets[place][i]);
  }
  return early;
}

LowerSetReplay replay(const LowerSetFile& file, std::span<const LowerSetCommand> schedule) {
  LowerSetReplay result;
  Bytes in_use;
  Bytes of_sources;
  std::vector<char> value(file.bytes.size(), 0);     // is it there?
  std::vector<char> gradient(file.bytes.size(), 0);  // the sink's never is: it is free
  for (const LowerSetCommand& command : schedule) {
    const std::uint32_t number = command.number;
    if (!is_compute(command)) {
      auto& items = command.kind == Kind::forget_value ? value : gradient;
      if (std::exchange(items[number], 0) != 0) in_use -= file.bytes[number];
      continue;
    }
    const Function& function = file.functions[number];
    if (command.kind == Kind::forward) {
      ++result.forward_calls;
      result.cost += function.cost();
      for (const Variable output : function.outputs) {
        if (std::exchange(value[output], 1) == 0) in_use += file.bytes[output];
      }
    } else {
      ++result.backward_calls;
      for (const std::uint32_t j : command.positions) {
        const Variable made = function.inputs[j];
        if (std::exchange(gradient[made], 1) != 0) continue;
        (file.is_source(made) ? of_sources : in_use) += file.bytes[made];
      }
    }
    result.peak = std::max(result.peak, in_use);
    result.peak_with_source_gradients =
        std::max(result.peak_with_source_gradients, in_use + of_sources);
  }
  return result;
}

std::string to_text(const LowerSetFile& file, std::span<const LowerSetCommand> schedule) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const LowerSetCommand& command : schedule) {
    switch (command.kind) {
      case Kind::forward: fmt::format_to(out, "compute {}\n", command.number); break;
      case Kind::backward:
        fmt::format_to(out, "compute {} {}\n", command.number + file.functions.size(),
                       fmt::join(command.positions, " "));
        break;
      case Kind::forget_value: fmt::format_to(out, "forget {} forward\n", command.number); break;
      case Kind::forget_gradient:
        fmt::format_to(out, "forget {} backward\n", command.number);
        break;
    }
  }
  return text;
}

}  // namespace reprise
