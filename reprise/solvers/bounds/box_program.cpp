// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/bounds/box_program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace reprise {
namespace {

constexpr int kBalancings = 10;
constexpr std::int64_t kLook = 50;      // steps between two looks at the distance
constexpr double kMuchNearer = 0.3;     // restart where the distance fell to this share
constexpr double kLongEnough = 0.36;    // … or where this share of all steps was since the last
constexpr std::int64_t kAtLeast = 200;  // … and so many
constexpr double kStep = 0.99;          // below 1: the tables' norm is at most 1
constexpr double kMoved = 1e-12;        // or nothing can be learnt from it

double norm(const std::vector<double>& entries) {
  double sum = 0;
  for (const double entry : entries) sum += entry * entry;
  return std::sqrt(sum);
}

double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace

BoxProgram::Variable BoxProgram::add_variable(std::int64_t cost) {
  costs_.push_back(cost);
  return static_cast<Variable>(costs_.size() - 1);
}

void BoxProgram::add_row(std::span<const Term> terms, std::int64_t at_least) {
  terms_.insert(terms_.end(), terms.begin(), terms.end());
  row_ends_.push_back(static_cast<std::uint32_t>(terms_.size()));
  at_least_.push_back(at_least);
}

void BoxProgram::close() {
  std::int64_t dearest = 1;
  for (const std::int64_t cost : costs_) dearest = std::max(dearest, cost);
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(dearest)));
  scale_ = std::clamp(60 - bits, 0, 40);

  std::vector<std::uint32_t> counts(costs_.size() + 1, 0);
  for (const Term& term : terms_) {
    by_row_.cells.push_back({term.variable, static_cast<double>(term.factor)});
    ++counts[term.variable + 1];
  }
  by_row_.ends = row_ends_;
  for (std::size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
  by_variable_.ends = counts;
  by_variable_.cells.resize(terms_.size());
  for (std::uint32_t row = 0; row < at_least_.size(); ++row) {
    for (const Cell& cell : by_row_[row]) {
      by_variable_.cells[counts[cell.index]++] = {row, cell.factor};
    }
  }
  balance();
}

// Divides each row by its largest factor; then (Ruiz, 2001) rows and variables by the root of
// theirs, again and again; and at last by the root of their sums (Pock and Chambolle, 2011), which
// bounds the norm by 1.
void BoxProgram::balance() {
  const auto largest = [](std::span<const Cell> cells) {
    double size = 0;
    for (const Cell& cell : cells) size = std::max(size, std::abs(cell.factor));
    return size;
  };
  const auto root_of_largest = [&](std::span<const Cell> cells) {
    return std::sqrt(largest(cells));
  };
  const auto root_of_sum = [](std::span<const Cell> cells) {
    double sum = 0;
    for (const Cell& cell : cells) sum += std::abs(cell.factor);
    return std::sqrt(sum);
  };
  const auto inverse = [](const Table& table, std::size_t count, auto size) {
    std::vector<double> factors(count, 1);
    for (std::size_t i = 0; i < count; ++i) {
      const double of_all = size(table[i]);
      if (of_all > 0) factors[i] = 1 / of_all;
    }
    return factors;
  };
  const std::size_t rows = at_least_.size();
  const std::size_t variables = costs_.size();
  const auto divide_by = [&](auto size) {
    multiply(inverse(by_row_, rows, size), inverse(by_variable_, variables, size));
  };
  unit_.assign(variables, 1);
  row_unit_.assign(rows, 1);
  multiply(inverse(by_row_, rows, largest), std::vector<double>(variables, 1));
  for (int i = 0; i < kBalancings; ++i) divide_by(root_of_largest);
  divide_by(root_of_sum);
  for (std::size_t j = 0; j < variables; ++j) {
    cost_.push_back(static_cast<double>(costs_[j]) * unit_[j]);
  }
  for (std::size_t i = 0; i < rows; ++i) {
    asked_.push_back(static_cast<double>(at_least_[i]) * row_unit_[i]);
  }
}

// Each factor by what its row and its variable are to be multiplied with.
void BoxProgram::multiply(const std::vector<double>& rows, const std::vector<double>& variables) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    row_unit_[i] *= rows[i];
    for (std::size_t at = by_row_.ends[i]; at < by_row_.ends[i + 1]; ++at) {
      by_row_.cells[at].factor *= rows[i] * variables[by_row_.cells[at].index];
    }
  }
  for (std::size_t j = 0; j < variables.size(); ++j) {
    unit_[j] *= variables[j];
    for (std::size_t at = by_variable_.ends[j]; at < by_variable_.ends[j + 1]; ++at) {
      by_variable_.cells[at].factor *= variables[j] * rows[by_variable_.cells[at].index];
    }
  }
}

BoxProgram::State BoxProgram::start() const {
  const double asked = norm(asked_);
  const double cost = norm(cost_);
  return {std::vector<double>(costs_.size(), 0), std::vector<double>(at_least_.size(), 0),
          asked > 0 && cost > 0 ? cost / asked : 1};
}

BoxProgram::Ends BoxProgram::ends(const Fixed& fixed) const {
  Ends ends;
  for (std::size_t j = 0; j < unit_.size(); ++j) {
    ends.low.push_back(fixed[j] == true ? 1 / unit_[j] : 0);
    ends.high.push_back(fixed[j] == false ? 0 : 1 / unit_[j]);
  }
  return ends;
}

// The primal-dual hybrid gradient method on its way from `state`, where it leaves the best prices
// it meets.
class BoxProgram::Descent {
 public:
  Descent(const BoxProgram& program, State& state, const Fixed& fixed)
      : program_(program),
        state_(state),
        ends_(program.ends(fixed)),
        here_{state.amounts, state.prices},
        sum_{std::vector<double>(here_.amounts.size(), 0),
             std::vector<double>(here_.prices.size(), 0)},
        ahead_(here_.amounts.size()) {
    for (std::size_t j = 0; j < ahead_.size(); ++j) {
      here_.amounts[j] = std::clamp(here_.amounts[j], ends_.low[j], ends_.high[j]);
    }
    from_ = here_;
    best_ = value(here_.prices);
  }

  void step() {
    for (std::size_t j = 0; j < ahead_.size(); ++j) {
      const double by = kStep / state_.weight * left(j, here_.prices);
      const double moved = std::clamp(here_.amounts[j] - by, ends_.low[j], ends_.high[j]);
      ahead_[j] = 2 * moved - here_.amounts[j];
      here_.amounts[j] = moved;
      sum_.amounts[j] += moved;
    }
    for (std::size_t i = 0; i < here_.prices.size(); ++i) {
      const double by = kStep * state_.weight * lack(i, ahead_);
      here_.prices[i] = std::max(0.0, here_.prices[i] + by);
      sum_.prices[i] += here_.prices[i];
    }
    ++since_;
    ++steps_;
  }

  // Notes the best prices, and starts anew from here or from the mean of all since the last time
  // where it has come much nearer or has gone on for long.
  void look() {
    Point mean = sum_;
    for (double& amount : mean.amounts) amount /= static_cast<double>(since_);
    for (double& price : mean.prices) price /= static_cast<double>(since_);
    const double at_here = distance(here_);
    const double at_mean = distance(mean);
    state_.amounts = mean.amounts;
    const double nearest = std::min(at_here, at_mean);
    if (!at_restart_) at_restart_ = nearest;
    const bool is_long = since_ >= kAtLeast &&
                         static_cast<double>(since_) > kLongEnough * static_cast<double>(steps_);
    if (nearest > kMuchNearer * *at_restart_ && !is_long) return;
    if (at_mean < at_here) here_ = std::move(mean);
    at_restart_ = nearest;
    restart();
  }

 private:
  struct Point {
    std::vector<double> amounts;
    std::vector<double> prices;
  };

  // What a variable costs beside what it is worth.
  double left(std::size_t variable, const std::vector<double>& prices) const {
    double left = program_.cost_[variable];
    for (const Cell& cell : program_.by_variable_[variable]) {
      left -= cell.factor * prices[cell.index];
    }
    return left;
  }

  // What a row asks for beside what it has.
  double lack(std::size_t row, const std::vector<double>& amounts) const {
    double lack = program_.asked_[row];
    for (const Cell& cell : program_.by_row_[row]) lack -= cell.factor * amounts[cell.index];
    return lack;
  }

  // What these prices prove, but for rounding.
  double value(const std::vector<double>& prices) const {
    double sum = 0;
    for (std::size_t i = 0; i < prices.size(); ++i) sum += program_.asked_[i] * prices[i];
    for (std::size_t j = 0; j < ahead_.size(); ++j) {
      const double left = this->left(j, prices);
      sum += left * (left > 0 ? ends_.low[j] : ends_.high[j]);
    }
    return sum;
  }

  // How far a point is from the best: by what rows lack, and by the gap between what it pays and
  // what it proves.
  double distance(const Point& point) {
    double lacking = 0;
    for (std::size_t i = 0; i < point.prices.size(); ++i) {
      const double lack = std::max(0.0, this->lack(i, point.amounts));
      lacking += lack * lack;
    }
    double paid = 0;
    for (std::size_t j = 0; j < ahead_.size(); ++j) paid += program_.cost_[j] * point.amounts[j];
    const double proven = value(point.prices);
    if (proven > best_) {
      best_ = proven;
      state_.prices = point.prices;
    }
    return state_.weight * std::sqrt(lacking) + std::abs(paid - proven);
  }

  void restart() {
    const double by_amounts = norm_of_difference(here_.amounts, from_.amounts);
    const double by_prices = norm_of_difference(here_.prices, from_.prices);
    if (by_amounts > kMoved && by_prices > kMoved) {
      state_.weight = std::sqrt(state_.weight * by_prices / by_amounts);
    }
    from_ = here_;
    std::fill(sum_.amounts.begin(), sum_.amounts.end(), 0);
    std::fill(sum_.prices.begin(), sum_.prices.end(), 0);
    since_ = 0;
  }

  const BoxProgram& program_;
  State& state_;
  Ends ends_;
  Point here_;
  Point from_;                        // at the last restart
  Point sum_;                         // of all points since then
  std::vector<double> ahead_;         // of the amounts, by as much as they moved
  double best_ = 0;                   // that was proven
  std::optional<double> at_restart_;  // the distance then; none: not known yet
  std::int64_t since_ = 0;            // steps
  std::int64_t steps_ = 0;
};

std::int64_t BoxProgram::improve(State& state, const Fixed& fixed, std::int64_t steps,
                                 const std::function<bool()>& must_stop) const {
  Descent descent(*this, state, fixed);
  for (std::int64_t step = 1; step <= steps; ++step) {
    descent.step();
    if (step % kLook != 0) continue;
    if (must_stop()) return step;
    descent.look();
  }
  return steps;
}

BoxProgram::Bound BoxProgram::bound(const State& state, const Fixed& fixed) const {
  Bound bound{0, std::vector<Wide>(costs_.size()), std::vector<bool>(costs_.size())};
  for (std::size_t j = 0; j < costs_.size(); ++j) bound.more[j] = Wide{costs_[j]} << scale_;
  for (std::size_t i = 0; i < at_least_.size(); ++i) {
    std::int64_t largest = std::max<std::int64_t>(1, std::abs(at_least_[i]));
    for (std::size_t at = row_ends_[i]; at < row_ends_[i + 1]; ++at) {
      largest = std::max(largest, std::abs(terms_[at].factor));
    }
    // No product is above 2^100, so that no sum overflows.
    const double highest = std::min(0x1p62, 0x1p100 / static_cast<double>(largest));
    const double price = std::ldexp(state.prices[i] * row_unit_[i], scale_);
    if (!(price >= 1)) continue;
    const auto whole = static_cast<std::int64_t>(std::min(price, highest));
    bound.cost += Wide{at_least_[i]} * whole;
    for (std::size_t at = row_ends_[i]; at < row_ends_[i + 1]; ++at) {
      bound.more[terms_[at].variable] -= Wide{terms_[at].factor} * whole;
    }
  }
  for (std::size_t j = 0; j < costs_.size(); ++j) {
    bound.at_1[j] = bound.more[j] < 0;
    if (fixed[j] == true || (!fixed[j] && bound.at_1[j])) bound.cost += bound.more[j];
    if (bound.at_1[j]) bound.more[j] = -bound.more[j];
  }
  return bound;
}

}  // namespace reprise
