// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "reprise/core/topology.h"
#include "reprise/solvers/bounds/smallest_peak.h"

namespace reprise {
namespace {

constexpr std::int64_t kStepsAtFirst = 1'200;
constexpr std::int64_t kStepsOfPart = 300;
constexpr std::size_t kMostStored = 50'000'000;  // parts times factors: some 200 MB
constexpr Cost kNoCost{std::numeric_limits<std::int64_t>::max()};

// A variable, or a number that is known.
struct Amount {
  std::optional<BoxProgram::Variable> variable;
  bool known = false;
};

// Writes the program of a chain down. Times are counted from 0, before the first moment, on;
// moment i is the end of time i - 1 and the beginning of time i.
class Writer {
 public:
  Writer(const Graph& graph, std::span<const OpId> ops, BoxProgram& program,
         std::vector<double>& weights)
      : graph_(graph),
        ops_(ops),
        last_(ops.size()),
        program_(program),
        weights_(weights),
        earliest_(graph.ops().size(), 0),
        latest_(graph.ops().size(), last_),
        own_(last_ + 1),
        kept_(last_ + 1, IdVector<ValueId, std::optional<Amount>>(graph.values().size())),
        runs_((last_ + 1) * (last_ + 1),
              IdVector<OpId, std::optional<Amount>>(graph.ops().size())) {
    for (std::size_t i = last_; i > 0; --i) {
      const OpId moment = ops[i - 1];
      const OpSet before = ancestors(graph, moment);
      const OpSet after = descendants(graph, moment);
      for (const OpId op : graph.ops()) {
        if (before[op] || op == moment) latest_[op] = i - 1;
        if (after[op]) earliest_[op] = std::max(earliest_[op], i);
      }
      own_[i] = own_values(graph, moment);
    }
    for (std::size_t i = 1; i < last_; ++i) earliest_[ops[i]] = i;
  }

  void write(Bytes budget) {
    for (std::size_t from = 1; from <= last_; ++from) {
      for (std::size_t to = from; to <= last_; ++to) write_needs(from, to);
    }
    while (!fresh_.empty()) {
      const Fresh fresh = fresh_.back();
      fresh_.pop_back();
      write_rows(fresh);
    }
    for (std::size_t i = 1; i <= last_; ++i) {
      std::vector<BoxProgram::Term> terms;
      Bytes all;
      for (const ValueId value : graph_.values()) {
        const auto& amount = kept_[i][value];
        if (!amount || !amount->variable || graph_.bytes(value) == Bytes{0}) continue;
        terms.push_back({*amount->variable, -graph_.bytes(value).count()});
        all += graph_.bytes(value);
      }
      const Bytes room = budget - bytes_alone(graph_, ops_[i - 1]);
      if (all <= room) continue;
      for (const BoxProgram::Term& term : terms) {
        weights_[term.variable] = static_cast<double>(graph_.base_cost().count()) *
                                  static_cast<double>(-term.factor) /
                                  static_cast<double>(all.count());
      }
      program_.add_row(terms, -room.count());
    }
    program_.close();
  }

 private:
  struct Kept {
    ValueId value;
    std::size_t moment;
  };
  struct Runs {
    OpId op;
    std::size_t from;
    std::size_t to;
  };
  using Fresh = std::variant<Kept, Runs>;

  // What has to run from moment `from` until the end of time `to`, and what that needs.
  void write_needs(std::size_t from, std::size_t to) {
    for (const OpId op : graph_.ops()) {
      const Amount amount = runs(op, from, to);
      if (!amount.known) continue;
      write_inputs(op, amount, from, to);
      if (from < to && from == earliest_[op] && to == latest_[op]) write_sum(op, amount, from, to);
    }
    if (to < last_) return;
    for (const ValueId value : graph_.values()) {
      if (graph_.kept(value)) write_need(value, {std::nullopt, true}, from, to);
    }
  }

  void write_inputs(OpId op, const Amount& runs, std::size_t from, std::size_t to) {
    for (const ValueId input : graph_.inputs(op)) write_need(input, runs, from, to);
  }

  // `value` is there between moment `from` and the end of time `to` where `by` is.
  void write_need(ValueId value, const Amount& by, std::size_t from, std::size_t to) {
    if (graph_.resident(value)) return;
    const Amount kept = this->kept(value, from);
    if (kept.known) return;
    const Amount made = runs(*graph_.producer(value), from, to);
    if (made.known) return;
    std::vector<BoxProgram::Term> terms;
    if (kept.variable) terms.push_back({*kept.variable, 1});
    if (made.variable) terms.push_back({*made.variable, 1});
    if (by.variable) terms.push_back({*by.variable, -1});
    program_.add_row(terms, by.known ? 1 : 0);
  }

  // Is `value` kept over moment `i`, beside what its op takes?
  Amount kept(ValueId value, std::size_t i) {
    auto& entry = kept_[i][value];
    if (entry) return *entry;
    entry = Amount{};
    if (own_[i][value]) {
      entry->known = true;
    } else if (earliest_[*graph_.producer(value)] < i) {
      entry->variable = add(0, 0);
      fresh_.emplace_back(Kept{value, i});
    }
    return *entry;
  }

  // Does `op` run between moment `from` and the end of time `to`?
  Amount runs(OpId op, std::size_t from, std::size_t to) {
    auto& entry = runs_[from * (last_ + 1) + to][op];
    if (entry) return *entry;
    entry = Amount{};
    const bool can_be_first = earliest_[op] <= to && latest_[op] >= from;
    if (earliest_[op] >= from && latest_[op] <= to) {
      entry->known = true;
    } else if (can_be_first || (latest_[op] < from && graph_.recomputable(op))) {
      const std::int64_t cost = graph_.cost(op).count();
      entry->variable = add(from == to && !can_be_first ? cost : 0, static_cast<double>(cost));
      fresh_.emplace_back(Runs{op, from, to});
    }
    return *entry;
  }

  void write_rows(const Fresh& fresh) {
    if (const auto* kept = std::get_if<Kept>(&fresh)) {
      for (std::size_t from = 1; from < kept->moment; ++from) {
        write_need(kept->value, this->kept(kept->value, kept->moment), from, kept->moment - 1);
      }
    } else {
      const Runs& run = std::get<Runs>(fresh);
      const Amount amount = runs(run.op, run.from, run.to);
      write_inputs(run.op, amount, run.from, run.to);
      if (run.from < run.to) write_sum(run.op, amount, run.from, run.to);
    }
  }

  // An op runs at no other time than at one of these.
  void write_sum(OpId op, const Amount& amount, std::size_t from, std::size_t to) {
    std::vector<BoxProgram::Term> terms;
    if (amount.variable) terms.push_back({*amount.variable, -1});
    for (std::size_t i = from; i <= to; ++i) {
      const Amount part = runs(op, i, i);
      if (part.variable) terms.push_back({*part.variable, 1});
    }
    program_.add_row(terms, amount.known ? 1 : 0);
  }

  BoxProgram::Variable add(std::int64_t cost, double weight) {
    weights_.push_back(weight);
    return program_.add_variable(cost);
  }

  const Graph& graph_;
  std::span<const OpId> ops_;
  std::size_t last_;
  BoxProgram& program_;
  std::vector<double>& weights_;
  IdVector<OpId, std::size_t> earliest_;  // time of the first run
  IdVector<OpId, std::size_t> latest_;
  std::vector<ValueSet> own_;  // there at a moment as the op's own
  std::vector<IdVector<ValueId, std::optional<Amount>>> kept_;
  std::vector<IdVector<OpId, std::optional<Amount>>> runs_;
  std::vector<Fresh> fresh_;  // variables whose rows are still to be written
};

}  // namespace

Chain::Chain(const Graph& graph, Bytes budget, std::span<const OpId> ops) : below_(kNoCost) {
  Writer(graph, ops, program_, weights_).write(budget);
  std::int64_t step = 0;
  for (const OpId op : graph.ops()) step = std::gcd(step, graph.cost(op).count());
  step_ = std::max<std::int64_t>(step, 1);
  parts_.push({Cost{0}, BoxProgram::Fixed(program_.variables()), program_.start(), 0});
}

Cost Chain::rounded(Wide cost) const {
  if (cost <= 0) return Cost{0};
  const Wide unit = Wide{step_} << program_.scale();
  const Wide steps = (cost + unit - 1) / unit;
  return Cost{static_cast<std::int64_t>(std::min(steps * step_, Wide{kNoCost.count()}))};
}

Cost Chain::proven() const {
  return parts_.empty() ? below_ : std::min(below_, parts_.top().bound);
}

bool Chain::is_branching() const { return solved() || steps_at_first_ >= kStepsAtFirst; }

bool Chain::solved() const {
  if (parts_.empty()) return true;
  if (parts_.size() * program_.size() > kMostStored) return true;
  return parts_.top().bound >= below_ || parts_.top().split == program_.variables();
}

// Settles what the part can't do otherwise without paying too much, and drops the part where it has
// to pay that anyhow. Gives the steps taken.
std::int64_t Chain::look(Part part, std::int64_t steps, const std::function<bool()>& must_stop) {
  const std::int64_t taken = program_.improve(part.state, part.fixed, steps, must_stop);
  const BoxProgram::Bound bound = program_.bound(part.state, part.fixed);
  part.bound = std::max(part.bound, rounded(bound.cost));
  if (steps_at_first_ < kStepsAtFirst) {
    by_prices_ = std::ldexp(static_cast<double>(bound.cost), -program_.scale());
  }
  if (part.bound >= below_) return taken;
  double most = -1;
  part.split = static_cast<BoxProgram::Variable>(program_.variables());
  for (BoxProgram::Variable j = 0; j < program_.variables(); ++j) {
    if (part.fixed[j]) continue;
    if (rounded(bound.cost + bound.more[j]) >= below_) {
      part.fixed[j] = bound.at_1[j];
      continue;
    }
    const double amount = program_.amount(part.state, j);
    const double doubt = std::min(amount, 1 - amount) * weights_[j];
    if (doubt <= most) continue;
    most = doubt;
    part.split = j;
  }
  parts_.push(std::move(part));
  return taken;
}

std::int64_t Chain::go_on(Cost below, std::int64_t steps, bool before_branching,
                          const std::function<bool()>& must_stop) {
  below_ = std::min(below_, below);
  std::int64_t taken = 0;
  while (!solved() && taken < steps && !must_stop()) {
    const bool branching = is_branching();
    if (branching && before_branching) break;
    Part part = parts_.top();
    parts_.pop();
    if (!branching) {
      const std::int64_t most = std::min(steps - taken, kStepsAtFirst - steps_at_first_);
      const std::int64_t at_first = look(std::move(part), most, must_stop);
      steps_at_first_ += at_first;
      taken += at_first;
      continue;
    }
    Part other = part;
    part.fixed[part.split] = true;
    other.fixed[part.split] = false;
    taken += look(std::move(part), kStepsOfPart, must_stop);
    taken += look(std::move(other), kStepsOfPart, must_stop);
  }
  return taken;
}

}  // namespace reprise
