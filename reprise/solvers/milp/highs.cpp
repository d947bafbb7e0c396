// SPDX-License-Identifier: Apache-2.0
#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include "reprise/solvers/milp/milp.h"

namespace reprise {
namespace {

static_assert(std::is_same_v<HighsInt, std::int32_t>, "a HiGHS with 32-bit indices");

struct Destroy {
  void operator()(void* highs) const { Highs_destroy(highs); }
};
using Highs = std::unique_ptr<void, Destroy>;

void expect_ok(HighsInt status, const char* doing) {
  if (status == kHighsStatusError) throw std::logic_error(std::string("HiGHS failed to ") + doing);
}

// Called by HiGHS now and then while it works.
void on_callback(int type, const char*, const HighsCallbackDataOut* out, HighsCallbackDataIn* in,
                 void* data) {
  const auto& query = *static_cast<const MilpQuery*>(data);
  if (type == kHighsCallbackMipLogging) {
    if (query.progress) query.progress(out->mip_dual_bound, out->mip_primal_bound);
    return;
  }
  if (in == nullptr) return;
  const bool stop = query.stop != nullptr && query.stop->load(std::memory_order_relaxed);
  const bool late = query.seconds && out->running_time > *query.seconds;
  in->user_interrupt = stop || late ? 1 : 0;
}

constexpr double kTolerance = 1e-9;  // a byte in a gigabyte

void set_options(void* highs, const MilpQuery& query) {
  Highs_setBoolOptionValue(highs, "output_flag", 0);
  Highs_setStringOptionValue(highs, "parallel", "off");
  // These do not look at the clock.
  Highs_setBoolOptionValue(highs, "mip_detect_symmetry", 0);
  Highs_setBoolOptionValue(highs, "mip_heuristic_run_feasibility_jump", 0);
  Highs_setIntOptionValue(highs, "threads", 1);
  Highs_setIntOptionValue(highs, "random_seed", static_cast<HighsInt>(query.seed % 0x7fffffff));
  Highs_setDoubleOptionValue(highs, "mip_rel_gap", 0);
  Highs_setDoubleOptionValue(highs, "mip_abs_gap", query.gap);
  Highs_setDoubleOptionValue(highs, "mip_feasibility_tolerance", kTolerance);
  Highs_setDoubleOptionValue(highs, "primal_feasibility_tolerance", kTolerance);
  if (query.seconds) Highs_setDoubleOptionValue(highs, "time_limit", std::max(*query.seconds, 0.0));
  if (query.nodes) {
    constexpr std::int64_t kMost = std::numeric_limits<HighsInt>::max();
    Highs_setIntOptionValue(highs, "mip_max_nodes",
                            static_cast<HighsInt>(std::min(*query.nodes, kMost)));
  }
}

void pass(void* highs, const SparseModel& model, bool relaxed) {
  const auto columns = static_cast<HighsInt>(model.column_count());
  const auto rows = static_cast<HighsInt>(model.row_count());
  const auto nonzeros = static_cast<HighsInt>(model.nonzeros());
  const HighsInt status =
      relaxed
          ? Highs_passLp(highs, columns, rows, nonzeros, kHighsMatrixFormatRowwise,
                         kHighsObjSenseMinimize, 0, model.column_costs.data(),
                         model.column_lower.data(), model.column_upper.data(),
                         model.row_lower.data(), model.row_upper.data(), model.row_starts.data(),
                         model.columns.data(), model.coefficients.data())
          : Highs_passMip(highs, columns, rows, nonzeros, kHighsMatrixFormatRowwise,
                          kHighsObjSenseMinimize, 0, model.column_costs.data(),
                          model.column_lower.data(), model.column_upper.data(),
                          model.row_lower.data(), model.row_upper.data(), model.row_starts.data(),
                          model.columns.data(), model.coefficients.data(), model.integral.data());
  expect_ok(status, "take the model");
}

MilpAnswer::Status status_of(HighsInt status) {
  if (status == kHighsModelStatusOptimal || status == kHighsModelStatusModelEmpty) {
    return MilpAnswer::Status::optimal;
  }
  if (status == kHighsModelStatusInfeasible || status == kHighsModelStatusUnboundedOrInfeasible) {
    return MilpAnswer::Status::infeasible;  // all columns have bounds
  }
  if (status == kHighsModelStatusTimeLimit || status == kHighsModelStatusIterationLimit ||
      status == kHighsModelStatusSolutionLimit || status == kHighsModelStatusInterrupt) {
    return MilpAnswer::Status::stopped;
  }
  return MilpAnswer::Status::failed;
}

}  // namespace

std::string milp_unavailable() { return ""; }

MilpAnswer solve_milp(const SparseModel& model, const MilpQuery& query) {
  const Highs owner(Highs_create());
  void* highs = owner.get();
  set_options(highs, query);
  pass(highs, model, query.relaxed);
  if (!query.start_columns.empty()) {
    expect_ok(Highs_setSparseSolution(highs, static_cast<HighsInt>(query.start_columns.size()),
                                      query.start_columns.data(), query.start_values.data()),
              "take the start");
  }
  MilpQuery shared = query;
  Highs_setCallback(highs, on_callback, &shared);
  for (const HighsInt when : {kHighsCallbackSimplexInterrupt, kHighsCallbackIpmInterrupt,
                              kHighsCallbackMipInterrupt, kHighsCallbackMipLogging}) {
    Highs_startCallback(highs, when);
  }
  Highs_run(highs);

  MilpAnswer answer;
  answer.status = status_of(Highs_getModelStatus(highs));
  HighsInt has_point = kHighsSolutionStatusNone;
  HighsInt has_duals = kHighsSolutionStatusNone;
  Highs_getIntInfoValue(highs, "primal_solution_status", &has_point);
  Highs_getIntInfoValue(highs, "dual_solution_status", &has_duals);
  std::vector<double> values(model.column_count());
  std::vector<double> column_duals(model.column_count());
  std::vector<double> row_values(model.row_count());
  std::vector<double> row_duals(model.row_count());
  Highs_getSolution(highs, values.data(), column_duals.data(), row_values.data(), row_duals.data());
  if (has_point == kHighsSolutionStatusFeasible) answer.values = std::move(values);
  if (query.relaxed) {
    if (has_duals != kHighsSolutionStatusNone) answer.row_duals = std::move(row_duals);
    return answer;
  }
  double bound = -kNoBound;
  Highs_getDoubleInfoValue(highs, "mip_dual_bound", &bound);
  const bool is_bound = std::abs(bound) < kNoBound && answer.status != MilpAnswer::Status::failed &&
                        answer.status != MilpAnswer::Status::infeasible;
  if (is_bound) answer.bound = bound;
  return answer;
}

}  // namespace reprise
