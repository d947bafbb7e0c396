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
  unit_.assign(costs_.size(), 1);
  row_unit_.assign(at_least_.size(), 1);
  for (int round = -1; round <= kBalancings; ++round) {
    const auto size = [&](std::span<const Cell> cells) {
      double sum = 0;
      double largest = 0;
      for (const Cell& cell : cells) {
        sum += std::abs(cell.factor);
        largest = std::max(largest, std::abs(cell.factor));
      }
      const double of_all = round == kBalancings ? sum : largest;
      return of_all > 0 ? 1 / std::sqrt(of_all) : 1;
    };
    std::vector<double> row(at_least_.size());
    std::vector<double> variable(costs_.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = size(by_row_[i]);
      if (round < 0) row[i] *= row[i];
      row_unit_[i] *= row[i];
    }
    for (std::size_t j = 0; j < variable.size(); ++j) {
      variable[j] = round < 0 ? 1 : size(by_variable_[j]);
      unit_[j] *= variable[j];
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::size_t at = by_row_.ends[i]; at < by_row_.ends[i + 1]; ++at) {
        by_row_.cells[at].factor *= row[i] * variable[by_row_.cells[at].index];
      }
    }
    for (std::size_t j = 0; j < variable.size(); ++j) {
      for (std::size_t at = by_variable_.ends[j]; at < by_variable_.ends[j + 1]; ++at) {
        by_variable_.cells[at].factor *= variable[j] * row[by_variable_.cells[at].index];
      }
    }
  }
  for (std::size_t j = 0; j < costs_.size(); ++j) {
    cost_.push_back(static_cast<double>(costs_[j]) * unit_[j]);
  }
  for (std::size_t i = 0; i < at_least_.size(); ++i) {
    asked_.push_back(static_cast<double>(at_least_[i]) * row_unit_[i]);
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

// What these prices prove, but for rounding.
double BoxProgram::value(const std::vector<double>& prices, const Ends& ends) const {
  double sum = 0;
  for (std::size_t i = 0; i < prices.size(); ++i) sum += asked_[i] * prices[i];
  for (std::size_t j = 0; j < cost_.size(); ++j) {
    double left = cost_[j];
    for (const Cell& cell : by_variable_[j]) left -= cell.factor * prices[cell.index];
    sum += left * (left > 0 ? ends.low[j] : ends.high[j]);
  }
  return sum;
}

// How far amounts and prices are from the best: by what rows lack, and by the gap between the two.
double BoxProgram::distance(const std::vector<double>& amounts, const std::vector<double>& prices,
                            double weight, const Ends& ends, double& proven) const {
  double lacking = 0;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    double lack = asked_[i];
    for (const Cell& cell : by_row_[i]) lack -= cell.factor * amounts[cell.index];
    if (lack > 0) lacking += lack * lack;
  }
  double paid = 0;
  for (std::size_t j = 0; j < cost_.size(); ++j) paid += cost_[j] * amounts[j];
  proven = value(prices, ends);
  return weight * std::sqrt(lacking) + std::abs(paid - proven);
}

std::int64_t BoxProgram::improve(State& state, const Fixed& fixed, std::int64_t steps,
                                 const std::function<bool()>& must_stop) const {
  const Ends ends = this->ends(fixed);
  std::vector<double> amounts = state.amounts;
  for (std::size_t j = 0; j < amounts.size(); ++j) {
    amounts[j] = std::clamp(amounts[j], ends.low[j], ends.high[j]);
  }
  std::vector<double> prices = state.prices;
  std::vector<double> ahead(amounts.size());  // of the amounts, by as much as they moved
  std::vector<double> mean_amounts(amounts.size());
  std::vector<double> mean_prices(prices.size());
  std::vector<double> sum_amounts(amounts.size(), 0);
  std::vector<double> sum_prices(prices.size(), 0);
  std::vector<double> from_amounts = amounts;
  std::vector<double> from_prices = prices;
  double best = value(prices, ends);
  double at_restart = -1;  // not known yet
  std::int64_t since = 0;
  for (std::int64_t step = 1; step <= steps; ++step) {
    for (std::size_t j = 0; j < amounts.size(); ++j) {
      double left = cost_[j];
      for (const Cell& cell : by_variable_[j]) left -= cell.factor * prices[cell.index];
      const double moved =
          std::clamp(amounts[j] - kStep / state.weight * left, ends.low[j], ends.high[j]);
      ahead[j] = 2 * moved - amounts[j];
      amounts[j] = moved;
      sum_amounts[j] += moved;
    }
    for (std::size_t i = 0; i < prices.size(); ++i) {
      double lack = asked_[i];
      for (const Cell& cell : by_row_[i]) lack -= cell.factor * ahead[cell.index];
      prices[i] = std::max(0.0, prices[i] + kStep * state.weight * lack);
      sum_prices[i] += prices[i];
    }
    ++since;
    if (step % kLook != 0) continue;
    if (must_stop()) return step;

    const auto times = static_cast<double>(since);
    for (std::size_t j = 0; j < amounts.size(); ++j) mean_amounts[j] = sum_amounts[j] / times;
    for (std::size_t i = 0; i < prices.size(); ++i) mean_prices[i] = sum_prices[i] / times;
    double proven = 0;
    double proven_by_mean = 0;
    const double here = distance(amounts, prices, state.weight, ends, proven);
    const double at_mean = distance(mean_amounts, mean_prices, state.weight, ends, proven_by_mean);
    for (const auto& [value, these] :
         {std::pair(proven, &prices), {proven_by_mean, &mean_prices}}) {
      if (value <= best) continue;
      best = value;
      state.prices = *these;
    }
    state.amounts = mean_amounts;
    const double nearest = std::min(here, at_mean);
    if (at_restart < 0) at_restart = nearest;
    const bool is_long =
        since >= kAtLeast && static_cast<double>(since) > kLongEnough * static_cast<double>(step);
    if (nearest > kMuchNearer * at_restart && !is_long) continue;
    if (at_mean < here) {
      amounts = mean_amounts;
      prices = mean_prices;
    }
    const double by_amounts = norm_of_difference(amounts, from_amounts);
    const double by_prices = norm_of_difference(prices, from_prices);
    if (by_amounts > 1e-12 && by_prices > 1e-12) {
      state.weight = std::sqrt(state.weight * by_prices / by_amounts);
    }
    from_amounts = amounts;
    from_prices = prices;
    std::fill(sum_amounts.begin(), sum_amounts.end(), 0);
    std::fill(sum_prices.begin(), sum_prices.end(), 0);
    at_restart = nearest;
    since = 0;
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
