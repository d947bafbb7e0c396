// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/checkmate/published.h"

#include <utility>
#include <vector>

namespace reprise {
namespace {

// Columns and rows in the published order; bytes and costs as they are.
class Builder {
 public:
  Builder(const Graph& graph, Bytes budget)
      : graph_(graph), budget_(static_cast<double>(budget.count())), stages_(graph.ops().size()) {
    for (const ValueId value : graph.values()) {
      if (graph.resident(value)) continue;
      for (const OpId reader : graph.consumers(value)) uses_.push_back({value, reader});
    }
  }

  CheckmateModel build() && {
    make_columns();
    bound_bytes();
    impose_full_schedule();
    for (std::size_t t = 0; t < stages_; ++t) {
      keep_only_what_is_there(t);
      read_only_what_is_there(t);
      for (std::size_t use = 0; use < uses_.size(); ++use) define_free(t, use);
      account(t);
    }
    return std::move(model_);
  }

 private:
  struct Use {
    ValueId value;
    OpId reader;
  };

  void make_columns() {
    SparseModel& program = model_.program;
    model_.runs = {stages_, stages_, Cell::zero()};
    model_.kept = {stages_ + 1, graph_.values().size(), Cell::zero()};
    for (std::size_t t = 0; t < stages_; ++t) {
      for (const OpId op : graph_.ops()) {
        const bool may_run = graph_.recomputable(op) || op.index == t;
        model_.runs.at(t, op) = Cell::column(program.add_column(
            static_cast<double>(graph_.cost(op).count()), 0, may_run ? 1 : 0, true));
      }
      for (const ValueId value : graph_.values()) {
        if (graph_.resident(value)) continue;
        model_.kept.at(t, value) = Cell::column(program.add_column(0, 0, 1, true));
      }
      for (std::size_t use = 0; use < uses_.size(); ++use) {
        frees_.push_back(program.add_column(0, 0, 1, true));
      }
      for (std::size_t k = 0; k < stages_; ++k) {
        bytes_.push_back(program.add_column(0, 0, budget_, false));
      }
    }
  }

  std::int32_t run(std::size_t t, OpId op) const { return model_.runs.at(t, op).number(); }
  std::int32_t free(std::size_t t, std::size_t use) const { return frees_[t * uses_.size() + use]; }
  std::int32_t bytes(std::size_t t, std::size_t k) const { return bytes_[t * stages_ + k]; }

  void begin(double lower, double upper) { model_.program.begin_row(lower, upper); }
  void add(std::int32_t column, double coefficient) { model_.program.add(column, coefficient); }
  void add(Cell cell, double coefficient) {
    if (cell.is_column()) add(cell.number(), coefficient);
  }

  void bound_bytes() {
    for (const std::int32_t column : bytes_) {
      begin(0, kNoBound);
      add(column, 1);
      begin(-kNoBound, budget_);
      add(column, 1);
    }
  }

  // Three rows: nothing runs before its stage, nothing is there before it ran, op t runs in t.
  void impose_full_schedule() {
    begin(0, 0);
    for (std::size_t t = 0; t < stages_; ++t) {
      for (const OpId op : graph_.ops()) {
        if (op.index > t) add(run(t, op), 1);
      }
    }
    begin(0, 0);
    for (std::size_t t = 0; t < stages_; ++t) {
      for (const ValueId value : graph_.values()) {
        if (!graph_.resident(value) && graph_.producer(value)->index >= t) {
          add(model_.kept.at(t, value), 1);
        }
      }
    }
    begin(static_cast<double>(stages_), static_cast<double>(stages_));
    for (const OpId op : graph_.ops()) add(run(op.index, op), 1);
  }

  void keep_only_what_is_there(std::size_t t) {
    for (const ValueId value : graph_.values()) {
      if (graph_.resident(value)) continue;
      const bool ends = t + 1 == stages_;
      if (ends && !graph_.kept(value)) continue;
      begin(-kNoBound, ends ? -1 : 0);
      add(model_.kept.at(t + 1, value), 1);
      add(model_.kept.at(t, value), -1);
      add(run(t, *graph_.producer(value)), -1);
    }
  }

  void read_only_what_is_there(std::size_t t) {
    for (const Use& use : uses_) {
      begin(-kNoBound, 0);
      add(run(t, use.reader), 1);
      add(run(t, *graph_.producer(use.value)), -1);
      add(model_.kept.at(t, use.value), -1);
    }
  }

  // With h = 1 − R[reader] + S[t+1] + the later reads: 1 − FREE ≤ h and κ·(1 − FREE) ≥ h.
  void define_free(std::size_t t, std::size_t number) {
    const Use& use = uses_[number];
    const bool stays = t + 1 == stages_ && graph_.kept(use.value);
    std::vector<OpId> later;
    for (const OpId reader : graph_.consumers(use.value)) {
      if (reader > use.reader) later.push_back(reader);
    }
    const double most = static_cast<double>(later.size()) + (t + 1 == stages_ && !stays ? 1 : 2);
    const auto add_row = [&](double coefficient, double lower, double upper) {
      begin(lower, upper);
      add(free(t, number), coefficient);
      add(run(t, use.reader), -1);
      add(model_.kept.at(t + 1, use.value), 1);
      for (const OpId reader : later) add(run(t, reader), 1);
    };
    const double constant = stays ? 1 : 0;
    add_row(1, -constant, kNoBound);
    add_row(most, -kNoBound, most - 1 - constant);
  }

  void account(std::size_t t) {
    for (const OpId op : graph_.ops()) {
      double made = static_cast<double>(graph_.workspace(op).count());
      for (const ValueId output : graph_.outputs(op)) {
        made += static_cast<double>(graph_.bytes(output).count());
      }
      begin(0, 0);
      add(bytes(t, op.index), -1);
      add(run(t, op), made);
      if (op.index == 0) {
        for (const ValueId value : graph_.values()) {
          add(model_.kept.at(t, value), static_cast<double>(graph_.bytes(value).count()));
        }
        continue;
      }
      const OpId before{op.index - 1};
      add(bytes(t, before.index), 1);
      add(run(t, before), -static_cast<double>(graph_.workspace(before).count()));
      for (std::size_t use = 0; use < uses_.size(); ++use) {
        if (uses_[use].reader != before) continue;
        add(free(t, use), -static_cast<double>(graph_.bytes(uses_[use].value).count()));
      }
    }
  }

  const Graph& graph_;
  const double budget_;
  const std::size_t stages_;
  std::vector<Use> uses_;
  CheckmateModel model_;
  std::vector<std::int32_t> frees_;
  std::vector<std::int32_t> bytes_;
};

}  // namespace

CheckmateModel published_checkmate_model(const Graph& graph, Bytes budget) {
  return Builder(graph, budget).build();
}

}  // namespace reprise
