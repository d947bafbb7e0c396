// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/checkmate/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reprise/core/simulator.h"

namespace reprise {
namespace {

// Adds rows of cells: numbers move to the row's sides.
class Rows {
 public:
  explicit Rows(SparseModel& program) : program_(program) {}

  Rows& begin() {
    terms_.clear();
    constant_ = 0;
    return *this;
  }
  Rows& add(Cell cell, double coefficient) {
    if (cell.is_column()) terms_.push_back({cell.number(), coefficient});
    if (cell == Cell::one()) constant_ += coefficient;
    return *this;
  }
  // Terms on one column are merged, as the solver wants it.
  void end(double lower, double upper) {
    std::sort(terms_.begin(), terms_.end(),
              [](const Term& a, const Term& b) { return a.column < b.column; });
    program_.begin_row(lower <= -kNoBound ? lower : lower - constant_,
                       upper >= kNoBound ? upper : upper - constant_);
    for (std::size_t i = 0; i < terms_.size();) {
      double sum = 0;
      const std::int32_t column = terms_[i].column;
      for (; i < terms_.size() && terms_[i].column == column; ++i) sum += terms_[i].coefficient;
      if (sum != 0) program_.add(column, sum);
    }
  }
  // a ≤ b, left out where it says nothing.
  void at_most(Cell a, Cell b) {
    if (a == b || a == Cell::zero() || b == Cell::one()) return;
    begin().add(a, 1).add(b, -1).end(-kNoBound, 0);
  }

 private:
  struct Term {
    std::int32_t column;
    double coefficient;
  };
  SparseModel& program_;
  std::vector<Term> terms_;
  double constant_ = 0;
};

// The last stage in which running an op again, or having a value on entry, can be of use; a kept
// value is of use at the end, one stage past the last.
struct LastUses {
  explicit LastUses(const Graph& graph)
      : run(graph.ops().size(), 0), value(graph.values().size(), 0) {
    const std::size_t ops = graph.ops().size();
    for (std::size_t i = ops; i-- > 0;) {
      const OpId op{static_cast<std::uint32_t>(i)};
      run[op] = i;
      for (const ValueId output : graph.outputs(op)) {
        if (graph.kept(output)) value[output] = ops;
        if (graph.recomputable(op)) run[op] = std::max(run[op], std::min(value[output], ops - 1));
      }
      for (const ValueId input : graph.inputs(op)) {
        value[input] = std::max(value[input], run[op]);
      }
    }
  }
  IdVector<OpId, std::size_t> run;
  IdVector<ValueId, std::size_t> value;
};

class Builder {
 public:
  Builder(const Graph& graph, std::optional<Bytes> budget, ImposedSchedule schedule)
      : graph_(graph),
        schedule_(schedule),
        ops_(graph.ops().size()),
        budget_(budget ? *budget : base_peak(graph)),
        byte_step_(step_of_bytes()),
        // Whole numbers where these are small, else a share of the budget.
        byte_unit_(
            std::max(static_cast<double>(byte_step_), static_cast<double>(budget_.count()) / 1e4)) {
    if (!budget) {
      peak_ = Cell::column(program().add_column(1, 0, most(), false));
      model_.unit = byte_unit_;
      model_.step = byte_step_;
    } else {
      scale_costs();
    }
  }

  CheckmateModel build() && {
    make_cells();
    for (std::size_t stage = 0; stage < ops_; ++stage) add_stage(stage);
    if (schedule_ != ImposedSchedule::full) add_coverage();
    return std::move(model_);
  }

 private:
  SparseModel& program() { return model_.program; }
  double amount(Bytes bytes) const { return static_cast<double>(bytes.count()) / byte_unit_; }

  // The budget, to half a step past the last sum that keeps it: neither what just fits nor what
  // just does not hangs on a rounding error.
  double most() const {
    const std::int64_t steps = budget_.count() / byte_step_;
    return (static_cast<double>(steps) + 0.5) * static_cast<double>(byte_step_) / byte_unit_;
  }

  // Every sum of bytes is a multiple of this.
  std::int64_t step_of_bytes() const {
    std::int64_t divisor = 0;
    for (const ValueId value : graph_.values()) {
      if (!graph_.resident(value)) divisor = std::gcd(divisor, graph_.bytes(value).count());
    }
    for (const OpId op : graph_.ops()) divisor = std::gcd(divisor, graph_.workspace(op).count());
    return std::max(divisor, std::int64_t{1});
  }

  void scale_costs() {
    std::int64_t divisor = 0;
    for (const OpId op : graph_.ops()) divisor = std::gcd(divisor, graph_.cost(op).count());
    model_.step = std::max(divisor, std::int64_t{1});
    model_.unit = std::max(static_cast<double>(model_.step),
                           static_cast<double>(graph_.base_cost().count()) / 1e7);
  }

  double price(OpId op) const {
    return peak_ ? 0 : static_cast<double>(graph_.cost(op).count()) / model_.unit;
  }

  void make_cells() {
    const LastUses last(graph_);
    const bool full = schedule_ == ImposedSchedule::full;
    if (full && !peak_) model_.fixed_cost = graph_.base_cost();
    model_.runs = {ops_, ops_, Cell::zero()};
    model_.kept = {ops_ + 1, graph_.values().size(), Cell::zero()};
    for (std::size_t stage = 0; stage < ops_; ++stage) {
      for (const OpId op : graph_.ops()) {
        const bool again = graph_.recomputable(op) && op.index < stage && stage <= last.run[op];
        if (full && op.index == stage) {
          model_.runs.at(stage, op) = Cell::one();
        } else if (!full || again) {
          model_.runs.at(stage, op) = Cell::column(program().add_column(price(op), 0, 1, true));
        }
      }
      for (const ValueId value : graph_.values()) {
        if (graph_.resident(value) || stage == 0) continue;
        const bool useful = graph_.producer(value)->index < stage && stage <= last.value[value];
        if (full && !useful) continue;
        model_.kept.at(stage, value) = Cell::column(program().add_column(0, 0, 1, true));
      }
    }
    for (const ValueId value : graph_.values()) {
      if (graph_.kept(value) && !graph_.resident(value)) {
        model_.kept.at(ops_, value) = Cell::one();
      }
    }
  }

  // Walks the ops that may run in the stage. held[v] is the cell that says whether v is there just
  // before the op: at first S; past an op that makes or reads it, whether it goes on being held:
  // a new column where another op of the stage reads it, else S of the next stage.
  void add_stage(std::size_t stage) {
    std::vector<OpId> slots;
    IdVector<ValueId, std::uint32_t> reads_left(graph_.values().size(), 0);
    for (const OpId op : graph_.ops()) {
      if (model_.runs.at(stage, op) == Cell::zero()) continue;
      slots.push_back(op);
      for (const ValueId input : graph_.inputs(op)) ++reads_left[input];
    }
    IdVector<ValueId, Cell> held(graph_.values().size(), Cell::zero());
    IdVector<ValueId, char> touched(graph_.values().size(), 0);
    for (const ValueId value : graph_.values()) held[value] = model_.kept.at(stage, value);
    const auto next_cell = [&](ValueId value) {
      touched[value] = 1;
      return reads_left[value] > 0 ? Cell::column(program().add_column(0, 0, 1, false))
                                   : model_.kept.at(stage + 1, value);
    };

    Cell before = Cell::zero();                   // bytes while the op before ran
    std::vector<std::pair<Cell, double>> change;  // since then
    for (const ValueId value : graph_.values()) {
      change.emplace_back(held[value], amount(graph_.bytes(value)));
    }
    for (const OpId op : slots) {
      const Cell run = model_.runs.at(stage, op);
      std::vector<std::pair<Cell, double>> after;
      const auto charge_while_running = [&](Cell cell, double bytes) {
        change.emplace_back(cell, bytes);
        after.emplace_back(cell, -bytes);
      };
      charge_while_running(run, amount(graph_.workspace(op)));
      for (const ValueId input : graph_.inputs(op)) {
        if (graph_.resident(input)) continue;
        rows_.at_most(run, held[input]);
        --reads_left[input];
        const Cell next = next_cell(input);
        rows_.at_most(next, held[input]);
        move(after, held[input], next, input);
        held[input] = next;
      }
      for (const ValueId output : graph_.outputs(op)) {
        charge_while_running(run, amount(graph_.bytes(output)));
        const Cell next = next_cell(output);
        if (next != Cell::zero() && run != Cell::one()) {
          rows_.begin().add(next, 1).add(held[output], -1).add(run, -1).end(-kNoBound, 0);
        }
        move(after, held[output], next, output);
        held[output] = next;
        if (const auto input = graph_.overwritten(output)) {
          charge_while_running(shared_buffer(run, held[*input]), -amount(graph_.bytes(output)));
        }
      }
      before = settle(before, change);
      change = std::move(after);
    }
    for (const ValueId value : graph_.values()) {
      if (touched[value] == 0) rows_.at_most(model_.kept.at(stage + 1, value), held[value]);
    }
  }

  void move(std::vector<std::pair<Cell, double>>& change, Cell from, Cell to, ValueId value) const {
    change.emplace_back(from, -amount(graph_.bytes(value)));
    change.emplace_back(to, amount(graph_.bytes(value)));
  }

  // Whether an output takes over the buffer of an input: the op runs, and the input is not held on.
  Cell shared_buffer(Cell run, Cell held_on) {
    if (held_on == Cell::zero()) return run;
    if (held_on == Cell::one()) return Cell::zero();
    const Cell shared = Cell::column(program().add_column(0, 0, 1, false));
    rows_.at_most(shared, run);
    rows_.begin().add(shared, 1).add(held_on, 1).end(-kNoBound, 1);
    return shared;
  }

  // The bytes while an op runs: those of the op before and what has changed.
  Cell settle(Cell before, const std::vector<std::pair<Cell, double>>& change) {
    const Cell bytes = Cell::column(program().add_column(0, 0, most(), false));
    rows_.begin().add(bytes, -1).add(before, 1);
    for (const auto& [cell, coefficient] : change) rows_.add(cell, coefficient);
    rows_.end(0, 0);
    if (peak_) rows_.at_most(bytes, *peak_);
    return bytes;
  }

  void add_coverage() {
    for (const OpId op : graph_.ops()) {
      const auto outputs = graph_.outputs(op);
      const bool is_read = std::any_of(outputs.begin(), outputs.end(), [&](ValueId output) {
        return !graph_.consumers(output).empty();
      });
      const bool covered = schedule_ == ImposedSchedule::cover_all || !is_read;
      if (!covered && graph_.recomputable(op)) continue;
      rows_.begin();
      for (std::size_t stage = 0; stage < ops_; ++stage) rows_.add(model_.runs.at(stage, op), 1);
      rows_.end(covered ? 1 : 0, graph_.recomputable(op) ? kNoBound : 1);
    }
  }

  const Graph& graph_;
  const ImposedSchedule schedule_;
  const std::size_t ops_;
  const Bytes budget_;  // the base peak, where the peak is minimised
  const std::int64_t byte_step_;
  const double byte_unit_;
  std::optional<Cell> peak_;  // where that is minimised
  CheckmateModel model_;
  Rows rows_{model_.program};
};

}  // namespace

CheckmateModel checkmate_model(const Graph& graph, std::optional<Bytes> budget,
                               ImposedSchedule schedule) {
  return Builder(graph, budget, schedule).build();
}

double amount(Cell cell, std::span<const double> point) {
  if (!cell.is_column()) return cell == Cell::one() ? 1 : 0;
  return point[static_cast<std::size_t>(cell.number())];
}

StageKept rounded_kept(const CheckmateModel& model, std::span<const double> point,
                       double threshold) {
  StageKept kept(model.kept.stages(), model.kept.ids().size(), 0);
  for (std::size_t stage = 0; stage < kept.stages(); ++stage) {
    for (const ValueId value : kept.ids()) {
      kept.at(stage, value) = amount(model.kept.at(stage, value), point) >= threshold ? 1 : 0;
    }
  }
  return kept;
}

Cost cost_bound(const CheckmateModel& model, double objective) {
  const double steps = objective * model.unit / static_cast<double>(model.step);
  if (!(steps > 0)) return model.fixed_cost;
  return model.fixed_cost + Cost{model.step} * static_cast<std::int64_t>(std::ceil(steps));
}

bool fits_memory(const Graph& graph, ImposedSchedule schedule, Bytes memory) {
  constexpr std::size_t kBytesPerNonzero = 1000;  // in the model, and in the solver's copies of it
  std::size_t edges = 0;
  for (const OpId op : graph.ops()) edges += graph.inputs(op).size();
  const std::size_t each = 4 * graph.ops().size() + 4 * graph.values().size() + 6 * edges;
  const std::size_t nonzeros =
      graph.ops().size() * each / (schedule == ImposedSchedule::full ? 2 : 1);
  return nonzeros <= static_cast<std::size_t>(memory.count()) / kBytesPerNonzero;
}

}  // namespace reprise
