// SPDX-License-Identifier: Apache-2.0
// The module reprise._torch: the runtime, for Python.
#include <ATen/ops/scalar_tensor.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>

#include "runtime/executor.h"
#include "runtime/memory_probe.h"
#include "runtime/program.h"
#include "runtime/training_step.h"

namespace reprise::runtime {
namespace {

namespace py = pybind11;

// A Python number where a tensor is wanted: a scalar that does not take part in type promotion, as
// the argument parser makes it.
at::Tensor wrapped_number(const py::object& number) {
  at::Tensor tensor;
  if (py::isinstance<py::bool_>(number)) {
    tensor = at::scalar_tensor(number.cast<bool>(), at::kBool);
  } else if (py::isinstance<py::int_>(number)) {
    tensor = at::scalar_tensor(number.cast<std::int64_t>(), at::kLong);
  } else if (py::isinstance<py::float_>(number)) {
    tensor = at::scalar_tensor(number.cast<double>(), at::kDouble);
  } else {
    tensor = at::scalar_tensor(c10::complex<double>(number.cast<std::complex<double>>()),
                               at::kComplexDouble);
  }
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

bool is_tensor_type(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  return type->kind() == c10::TypeKind::OptionalType &&
         type->expectRef<c10::OptionalType>().getElementType()->kind() == c10::TypeKind::TensorType;
}

bool has_optional_elements(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::ListType &&
         type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType;
}

// ("t", slot), ("ts", [slot, …]) or ("c", constant).
Argument argument_from(const py::tuple& given, const c10::Argument& wanted) {
  const auto kind = given[0].cast<std::string>();
  Argument argument;
  if (kind == "t") {
    argument.kind = Argument::Kind::tensor;
    argument.slots = {given[1].cast<SlotId>()};
  } else if (kind == "ts") {
    argument.kind = has_optional_elements(wanted.real_type()) ? Argument::Kind::optional_tensors
                                                              : Argument::Kind::tensors;
    argument.slots = given[1].cast<std::vector<SlotId>>();
  } else if (is_tensor_type(wanted.real_type()) && !given[1].is_none()) {
    argument.constant = wrapped_number(given[1].cast<py::object>());
  } else {
    argument.constant = torch::jit::toIValue(given[1], wanted.real_type());
  }
  return argument;
}

Call call_from(const py::dict& given) {
  const auto name = given["op"].cast<std::string>();
  const auto overload = given["overload"].cast<std::string>();
  Call call(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()));
  const auto& wanted = call.op.schema().arguments();
  const auto arguments = given["arguments"].cast<py::list>();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    call.arguments.push_back(argument_from(arguments[i].cast<py::tuple>(), wanted[i]));
  }
  for (const py::handle result : given["results"].cast<py::list>()) {
    const bool is_list = py::isinstance<py::list>(result);
    call.results.push_back({is_list, is_list ? result.cast<std::vector<SlotId>>()
                                             : std::vector<SlotId>{result.cast<SlotId>()}});
  }
  call.scratch = given["scratch"].cast<std::vector<std::int32_t>>();
  call.unread = given["unread"].cast<std::vector<std::int32_t>>();
  call.bumped = given["bumped"].cast<std::vector<std::int32_t>>();
  call.random = given["random"].cast<bool>();
  call.replays = given["replays"].cast<CallId>();
  call.device = given["device"].cast<c10::Device>();
  call.where = given["where"].cast<std::string>();
  return call;
}

Operation operation_from(const py::dict& given) {
  Operation operation;
  operation.calls = given["calls"].cast<std::vector<CallId>>();
  operation.made = given["made"].cast<std::vector<std::int32_t>>();
  operation.read = given["read"].cast<std::vector<std::int32_t>>();
  for (const py::handle item : given["takeovers"].cast<py::list>()) {
    const auto [value, from, to] = item.cast<std::tuple<std::int32_t, SlotId, SlotId>>();
    operation.takeovers.push_back({value, from, to});
  }
  return operation;
}

std::shared_ptr<Program> program_from(const py::dict& given) {
  auto program = std::make_shared<Program>();
  for (const py::handle call : given["calls"].cast<py::list>()) {
    program->calls.push_back(call_from(call.cast<py::dict>()));
  }
  for (const py::handle operation : given["operations"].cast<py::list>()) {
    program->operations.push_back(operation_from(operation.cast<py::dict>()));
  }
  program->slots_of_value = given["slots_of_value"].cast<std::vector<std::vector<SlotId>>>();
  program->view_of_slot = given["view_of_slot"].cast<std::vector<CallId>>();
  program->value_of_slot = given["value_of_slot"].cast<std::vector<std::int32_t>>();
  program->outside = given["outside"].cast<std::int32_t>();
  program->inputs = given["inputs"].cast<std::vector<SlotId>>();
  program->constants = given["constants"].cast<std::vector<std::pair<SlotId, at::Tensor>>>();
  program->fresh = given["fresh"].cast<std::vector<SlotId>>();
  program->remembered = given["remembered"].cast<std::vector<SlotId>>();
  program->outputs = given["outputs"].cast<std::vector<SlotId>>();
  program->differentiable = given["differentiable"].cast<std::vector<bool>>();
  program->tangents = given["tangents"].cast<std::vector<SlotId>>();
  program->gradients = given["gradients"].cast<std::vector<SlotId>>();
  return program;
}

// Runs one call `times` times on the given tensors. Returns seconds a run, and the results by slot.
py::tuple run_alone(const std::shared_ptr<Program>& program, CallId call,
                    const std::vector<std::pair<SlotId, at::Tensor>>& tensors, int times) {
  Frame frame(*program);
  for (const auto& [slot, tensor] : tensors) frame.slots[at(slot)] = tensor;
  double seconds = 0;
  {
    const py::gil_scoped_release release;
    const BelowAutograd below;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
      run_call(*program, {.kind = Instruction::Kind::call, .a = call}, frame);
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  py::dict results;
  for (const Result& result : program->calls[at(call)].results) {
    for (const SlotId slot : result.slots) {
      if (slot != kNone) results[py::int_(slot)] = frame.slots[at(slot)];
    }
  }
  return py::make_tuple(seconds / times, results);
}

}  // namespace
}  // namespace reprise::runtime

PYBIND11_MODULE(_torch, module) {
  namespace py = pybind11;
  using namespace reprise::runtime;
  module.doc() = "Reprise's runtime on libtorch.";

  py::class_<Program, std::shared_ptr<Program>>(module, "Program").def(py::init(&program_from));
  py::class_<Schedule, std::shared_ptr<Schedule>>(module, "Schedule")
      .def(py::init(
          [](const std::shared_ptr<Program>& program, const std::vector<std::int32_t>& steps) {
            return std::make_shared<Schedule>(make_schedule(program, steps));
          }))
      .def_property_readonly(
          "instructions",
          [](const Schedule& self) {
            std::vector<py::tuple> all;
            for (const Instruction& i : self.instructions) {
              all.push_back(py::make_tuple(static_cast<int>(i.kind), i.a, i.b, i.save_random,
                                           i.replay_random, i.again, i.step));
            }
            return all;
          })
      .def_readonly("forward_end", &Schedule::forward_end)
      .def_property_readonly("stages", [](const Schedule& self) {
        std::vector<std::pair<std::size_t, std::vector<std::int32_t>>> all;
        for (const Stage& stage : self.stages) all.emplace_back(stage.end, stage.inputs);
        return all;
      });

  py::class_<Prepared, std::shared_ptr<Prepared>>(module, "Prepared")
      .def(py::init([](const std::shared_ptr<Schedule>& schedule, const py::list& tangents,
                       bool autocast, py::object other, py::object tighter, py::object finished,
                       std::optional<c10::Device> measured, bool recorded) {
             auto prepared = std::make_shared<Prepared>();
             prepared->schedule = schedule;
             prepared->expected.autocast = autocast;
             for (const py::handle tangent : tangents) {
               prepared->expected.tangents.push_back(
                   tangent.is_none() ? Tangent{}
                                     : Tangent{true, tangent.cast<std::vector<std::int64_t>>()});
             }
             // Held without the GIL, dropped with it.
             const auto hold = [](py::object object) {
               return std::shared_ptr<py::object>(new py::object(std::move(object)),
                                                  [](py::object* o) {
                                                    const py::gil_scoped_acquire acquire;
                                                    delete o;
                                                  });
             };
             prepared->other = [call = hold(std::move(other))](const BackwardCase& actual) {
               const py::gil_scoped_acquire acquire;
               py::list handed;
               for (const Tangent& tangent : actual.tangents) {
                 handed.append(tangent.defined ? py::cast(tangent.strides) : py::none());
               }
               return (*call)(handed, actual.autocast).cast<std::shared_ptr<Schedule>>();
             };
             if (!tighter.is_none()) {
               prepared->tighter = [call = hold(std::move(tighter))] {
                 const py::gil_scoped_acquire acquire;
                 return (*call)().cast<std::shared_ptr<Schedule>>();
               };
             }
             prepared->finished = [call = hold(std::move(finished))](const Taken& taken) {
               const py::gil_scoped_acquire acquire;
               const py::error_scope in_flight;  // a step may end while an exception is on its way
               try {
                 (*call)(taken.whole, taken.peak, taken.forward_end, taken.outside_peak,
                         taken.backward_begin, taken.peaks, taken.before);
               } catch (py::error_already_set& error) {
                 error.discard_as_unraisable("reprise");
               }
             };
             prepared->measured = measured;
             prepared->recorded = recorded;
             return prepared;
           }),
           py::arg("schedule"), py::arg("tangents"), py::arg("autocast"), py::arg("other"),
           py::arg("tighter"), py::arg("finished"), py::arg("measured"), py::arg("recorded"));
  module.def("run_step", &run_step, py::call_guard<py::gil_scoped_release>());
  module.def("run_alone", &run_alone);

  module.def("install_memory_probe", &install_memory_probe);
  module.def("bytes_in_use", &bytes_in_use);
  module.def("is_counted", [](const at::Tensor& tensor) {
    return is_counted(tensor.storage().data_ptr().get_context());
  });
  py::class_<MemoryWindow>(module, "MemoryWindow")
      .def(py::init<>())
      .def_property_readonly("peak", &MemoryWindow::peak)
      .def_property_readonly("start", &MemoryWindow::start)
      .def("close", &MemoryWindow::close);
}
