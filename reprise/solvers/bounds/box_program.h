// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "reprise/core/units.h"

namespace reprise {

// A linear program whose variables all lie between 0 and 1: the least cost at which every row, a
// linear sum of variables, is at least what it asks for. In integers.
//
// Prices on the rows, whatever they are, prove a bound: what the rows ask for at these prices, less
// what each variable is worth beside its cost. Good prices come from the primal-dual hybrid
// gradient method with restarts (Applegate et al., PDLP, NeurIPS'21) in floating point; they are
// then rounded to whole numbers of 2^-scale, and the bound is computed from those exactly.
class BoxProgram {
 public:
  using Variable = std::uint32_t;
  struct Term {
    Variable variable;
    std::int64_t factor;
  };

  Variable add_variable(std::int64_t cost);
  void add_row(std::span<const Term> terms, std::int64_t at_least);
  void close();  // after the last row, before all that follows

  std::size_t variables() const { return costs_.size(); }
  std::size_t size() const { return by_row_.cells.size(); }  // factors that are not 0
  int scale() const { return scale_; }

  // Where a search for prices is. Starts at nothing.
  struct State {
    std::vector<double> amounts;  // of the variables, in units of their own
    std::vector<double> prices;   // of the rows, likewise
    double weight = 0;            // of a step in amounts against one in prices
  };
  State start() const;

  // The variables that are settled, each at 0 or 1.
  using Fixed = std::vector<std::optional<bool>>;

  // Takes so many steps from `state`, and leaves in it the best prices met. Gives the steps taken:
  // fewer where `must_stop`.
  std::int64_t improve(State& state, const Fixed& fixed, std::int64_t steps,
                       const std::function<bool()>& must_stop) const;

  struct Bound {
    Wide cost;               // in 2^-scale; no choice costs less
    std::vector<Wide> more;  // … with the variable at its dearer end, beside `cost`
    std::vector<bool> at_1;  // which of its ends is the cheaper one
  };
  Bound bound(const State& state, const Fixed& fixed) const;

  double amount(const State& state, Variable variable) const {
    return state.amounts[variable] * unit_[variable];
  }

 private:
  struct Cell {
    std::uint32_t index;
    double factor;
  };
  struct Table {  // cells of a row (or variable) side by side
    std::vector<Cell> cells;
    std::vector<std::uint32_t> ends{0};

    std::span<const Cell> operator[](std::size_t i) const {
      return {cells.data() + ends[i], ends[i + 1] - ends[i]};
    }
  };
  struct Ends {
    std::vector<double> low, high;
  };
  class Descent;

  void balance();
  void multiply(const std::vector<double>& rows, const std::vector<double>& variables);
  Ends ends(const Fixed& fixed) const;

  std::vector<std::int64_t> costs_;
  std::vector<std::int64_t> at_least_;
  std::vector<Term> terms_;
  std::vector<std::uint32_t> row_ends_{0};
  int scale_ = 0;

  // The same in floating point, with rows and variables in units that make all factors alike.
  Table by_row_;
  Table by_variable_;
  std::vector<double> unit_;      // of a variable
  std::vector<double> row_unit_;  // of a row
  std::vector<double> cost_;
  std::vector<double> asked_;
};

}  // namespace reprise
