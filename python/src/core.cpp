// SPDX-License-Identifier: Apache-2.0
// The module reprise._core: graphs, plans and solvers, for Python. No torch.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <chrono>

#include "reprise/core/checker.h"
#include "reprise/core/lifetimes.h"
#include "reprise/core/simulator.h"
#include "reprise/formats/graph_json.h"
#include "reprise/formats/plan_json.h"
#include "reprise/solvers/solver.h"

namespace reprise {
namespace {

namespace py = pybind11;

// An op to compute, or ~value to free: what the runtime takes.
std::vector<std::int32_t> codes_of(const Plan& plan) {
  std::vector<std::int32_t> codes;
  for (const Step step : plan.steps) {
    codes.push_back(step.kind() == StepKind::compute
                        ? static_cast<std::int32_t>(step.op().index)
                        : ~static_cast<std::int32_t>(step.value().index));
  }
  return codes;
}

Plan plan_of(const std::vector<std::int32_t>& codes) {
  Plan plan;
  for (const std::int32_t code : codes) {
    plan.steps.push_back(code >= 0 ? Step::compute(OpId{static_cast<std::uint32_t>(code)})
                                   : Step::free(ValueId{static_cast<std::uint32_t>(~code)}));
  }
  return plan;
}

py::object or_none(std::optional<Bytes> bytes) {
  return bytes ? py::object(py::int_(bytes->count())) : py::none();
}

py::dict solve_graph(const Graph& graph, std::optional<std::int64_t> budget,
                     std::optional<double> seconds, std::optional<std::int64_t> iterations,
                     double gap, int threads, std::uint64_t seed,
                     const std::vector<std::int32_t>& start) {
  std::atomic<bool> stop = false;
  Limits limits;
  if (seconds) limits.time = std::chrono::duration<double>(*seconds);
  limits.iterations = iterations;
  limits.gap = gap;
  limits.threads = threads;
  limits.seed = seed;
  limits.stop = &stop;
  bool interrupted = false;
  limits.progress = [&](std::string_view) {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) {
      PyErr_Clear();
      stop = interrupted = true;
    }
  };
  const Plan start_plan = plan_of(start);
  Outcome outcome;
  {
    const py::gil_scoped_release release;
    const Budget bound{budget ? std::optional(Bytes{*budget}) : std::nullopt};
    outcome = solve(find_solver("auto"),
                    {graph, bound, Objective::time, start.empty() ? nullptr : &start_plan}, limits);
  }
  if (interrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw py::error_already_set();
  }
  py::dict answer;
  answer["status"] = std::string(to_string(outcome.status));
  answer["steps"] = outcome.plan ? py::object(py::cast(codes_of(*outcome.plan))) : py::none();
  answer["peak_bytes"] = outcome.plan ? py::object(py::int_(outcome.peak.count())) : py::none();
  answer["cost"] = outcome.plan ? py::object(py::int_(outcome.cost.count())) : py::none();
  answer["lower_bound"] =
      outcome.lower_bound ? py::object(py::int_(outcome.lower_bound->count())) : py::none();
  answer["smallest_peak_bytes"] = or_none(outcome.smallest_peak);
  answer["smallest_peak_bound"] = outcome.smallest_peak_bound.bytes.count();
  answer["binding_op"] = outcome.smallest_peak_bound.op
                             ? py::object(py::str(graph.name(*outcome.smallest_peak_bound.op)))
                             : py::none();
  return answer;
}

py::dict replay(const Graph& graph, const std::vector<std::int32_t>& codes) {
  const Plan plan = plan_of(codes);
  const Replay replay = simulate(graph, plan);
  std::vector<std::int64_t> in_use;
  for (const Bytes bytes : replay.in_use) in_use.push_back(bytes.count());
  py::dict answer;
  answer["peak_bytes"] = replay.peak.count();
  answer["cost"] = replay.cost.count();
  answer["in_use"] = in_use;
  return answer;
}

std::string check_plan(const Graph& graph, const std::vector<std::int32_t>& codes) {
  const Verdict verdict = check(graph, plan_of(codes));
  return verdict.broken ? describe(graph, *verdict.broken) : std::string();
}

}  // namespace
}  // namespace reprise

PYBIND11_MODULE(_core, module) {
  namespace py = pybind11;
  using namespace reprise;
  module.doc() = "Reprise's graphs, plans and solvers.";
  py::register_exception<InputError>(module, "InputError", PyExc_ValueError);

  py::class_<Graph>(module, "Graph")
      .def(py::init([](const std::string& json, const std::string& source) {
             return read_graph_json(JsonDocument({source, json}));
           }),
           py::arg("json"), py::arg("source") = "<graph>")
      .def("to_json", &write_graph_json)
      .def_property_readonly("base_peak", [](const Graph& g) { return base_peak(g).count(); })
      .def_property_readonly("base_cost", [](const Graph& g) { return g.base_cost().count(); })
      .def_property_readonly("base_run", [](const Graph& g) { return codes_of(base_run(g)); })
      .def("solve", &solve_graph, py::arg("budget"), py::kw_only(), py::arg("seconds") = py::none(),
           py::arg("iterations") = py::none(), py::arg("gap") = 0.0, py::arg("threads") = 1,
           py::arg("seed") = 0, py::arg("start") = std::vector<std::int32_t>{})
      .def("replay", &replay)
      .def("check", &check_plan)
      .def("write_plan",
           [](const Graph& g, const std::vector<std::int32_t>& codes, const std::string& solver) {
             const Plan plan = plan_of(codes);
             const Replay r = simulate(g, plan);
             return write_plan_json(g, plan, solver, r.peak, r.cost);
           })
      .def("read_plan", [](const Graph& g, const std::string& json, const std::string& source) {
        return codes_of(resolve(read_plan_json({source, json}), g, source));
      });
  module.def("parse_budget", [](const std::string& text, std::int64_t base) -> py::object {
    return or_none(parse_budget(text, Bytes{base}).bytes);
  });
  module.def("to_words", [](std::int64_t bytes) { return to_words(Bytes{bytes}); });
}
