// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace reprise {

// A linear program to be minimised, some of its columns integral. Rows are kept one after the
// other, as the solver takes them.
struct SparseModel {
  std::vector<double> column_costs;
  std::vector<double> column_lower;
  std::vector<double> column_upper;
  std::vector<std::int32_t> integral;  // 1 or 0 a column

  std::vector<double> row_lower;
  std::vector<double> row_upper;
  std::vector<std::int32_t> row_starts;  // of each row in the two below
  std::vector<std::int32_t> columns;
  std::vector<double> coefficients;

  std::int32_t add_column(double cost, double lower, double upper, bool is_integral);
  void begin_row(double lower, double upper);
  void add(std::int32_t column, double coefficient);  // to the last row

  std::size_t column_count() const { return column_costs.size(); }
  std::size_t row_count() const { return row_lower.size(); }
  std::size_t nonzeros() const { return columns.size(); }
};

inline constexpr double kNoBound = 1e30;  // past this, a side of a row or column is open

// What weak duality proves: no point inside the bounds and rows of `model` costs less, whatever
// `row_duals` are, since each is cut to the signs that its row allows. Needs bounds on all columns.
// Rounding errors are subtracted.
double dual_bound(const SparseModel& model, std::span<const double> row_duals);

// How to solve a model, and when to stop.
struct MilpQuery {
  bool relaxed = false;               // leave out that columns are integral
  std::optional<double> seconds;      // from the call
  std::optional<std::int64_t> nodes;  // of the search tree
  double gap = 0;                     // between the best point and the bound, good enough to end
  std::uint64_t seed = 0;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(double bound, double best)> progress;  // now and then, or empty

  // A point to start from: some columns (integral ones suffice) and their values.
  std::vector<std::int32_t> start_columns;
  std::vector<double> start_values;
};

struct MilpAnswer {
  enum class Status : std::uint8_t { optimal, infeasible, stopped, failed } status = Status::failed;
  std::vector<double> values;     // of the best point, a column each; empty: none
  std::vector<double> row_duals;  // of a relaxed model; empty: none
  std::optional<double> bound;    // of an integral model: nothing costs less, within tolerances
};

// Empty, or why no model can be solved here and what to do about it, worded to follow "solver 'x'
// …".
std::string milp_unavailable();

// Solves `model` with HiGHS on one thread. Throws std::logic_error where milp_unavailable().
MilpAnswer solve_milp(const SparseModel& model, const MilpQuery& query);

}  // namespace reprise
