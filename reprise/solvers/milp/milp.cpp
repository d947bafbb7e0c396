// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/milp/milp.h"

#include <cmath>
#include <limits>

namespace reprise {

std::int32_t SparseModel::add_column(double cost, double lower, double upper, bool is_integral) {
  column_costs.push_back(cost);
  column_lower.push_back(lower);
  column_upper.push_back(upper);
  integral.push_back(is_integral ? 1 : 0);
  return static_cast<std::int32_t>(column_costs.size() - 1);
}

void SparseModel::begin_row(double lower, double upper) {
  row_lower.push_back(lower);
  row_upper.push_back(upper);
  row_starts.push_back(static_cast<std::int32_t>(columns.size()));
}

void SparseModel::add(std::int32_t column, double coefficient) {
  columns.push_back(column);
  coefficients.push_back(coefficient);
}

// min c·x ≥ Σ y·(the side of the row that y's sign allows) + Σ min over [l, u] of (c − Aᵀy)·x.
double dual_bound(const SparseModel& model, std::span<const double> row_duals) {
  std::vector<double> reduced = model.column_costs;
  std::vector<double> magnitude(reduced.size(), 0);  // of what was added up, for its rounding error
  double bound = 0;
  double size = 0;
  for (std::size_t row = 0; row < model.row_count(); ++row) {
    const double dual = row_duals[row];
    const double side = dual > 0 ? model.row_lower[row] : model.row_upper[row];
    if (dual == 0 || !std::isfinite(dual) || std::abs(side) >= kNoBound) continue;
    bound += dual * side;
    size += std::abs(dual * side);
    const std::size_t end = row + 1 < model.row_count()
                                ? static_cast<std::size_t>(model.row_starts[row + 1])
                                : model.nonzeros();
    for (auto at = static_cast<std::size_t>(model.row_starts[row]); at < end; ++at) {
      const auto column = static_cast<std::size_t>(model.columns[at]);
      reduced[column] -= dual * model.coefficients[at];
      magnitude[column] += std::abs(dual * model.coefficients[at]);
    }
  }
  double error = 0;  // in units of the rounding error
  for (std::size_t column = 0; column < reduced.size(); ++column) {
    const double lower = model.column_lower[column];
    const double upper = model.column_upper[column];
    const double side = reduced[column] > 0 ? lower : upper;
    bound += reduced[column] * side;
    size += std::abs(reduced[column] * side);
    error += (magnitude[column] + std::abs(model.column_costs[column])) *
             std::max(std::abs(lower), std::abs(upper));
  }
  // Each sum has far fewer terms than 2^20, so its relative error is below 2^-32.
  return bound - (error + size) * std::ldexp(1.0, -32);
}

}  // namespace reprise
