// SPDX-License-Identifier: Apache-2.0
// The module reprise._torch: the runtime, for Python.
#include <ATen/ops/scalar_tensor.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/copy_into.h"
#include "runtime/cuda_graph.h"
#include "runtime/executor.h"
#include "runtime/graph_memory.h"
#include "runtime/graphed_step.h"
#include "runtime/memory_probe.h"
#include "runtime/peak_meter.h"
#include "runtime/program.h"
#include "runtime/residents.h"
#include "runtime/schedule.h"
#include "runtime/sharing.h"
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

// What follows reads the dataclasses of python/reprise/capture/program.py.
template <typename T>
void read(const py::handle& given, const char* name, T& field) {
  field = given.attr(name).cast<T>();
}

Argument argument_from(const py::handle& given, const c10::Argument& wanted) {
  Argument argument;
  if (py::isinstance<py::int_>(given)) {
    argument.kind = Argument::Kind::tensor;
    argument.slots = {given.cast<SlotId>()};
    return argument;
  }
  if (py::isinstance<py::list>(given)) {
    argument.kind = has_optional_elements(wanted.real_type()) ? Argument::Kind::optional_tensors
                                                              : Argument::Kind::tensors;
    argument.slots = given.cast<std::vector<SlotId>>();
    return argument;
  }
  const py::object constant = given.attr("value");
  argument.constant = is_tensor_type(wanted.real_type()) && !constant.is_none()
                          ? wrapped_number(constant)
                          : torch::jit::toIValue(constant, wanted.real_type());
  return argument;
}

Call call_from(const py::handle& given) {
  const auto name = given.attr("op").cast<std::string>();
  const auto overload = given.attr("overload").cast<std::string>();
  Call call(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()));
  if (const py::object plain = given.attr("plain"); !plain.is_none()) {
    call.plain = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(),
                                                                plain.cast<std::string>().c_str());
  }
  const auto& wanted = call.op.schema().arguments();
  const auto arguments = given.attr("arguments").cast<py::list>();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    call.arguments.push_back(argument_from(arguments[i], wanted[i]));
  }
  for (const py::handle result : given.attr("results")) {
    const bool is_list = py::isinstance<py::list>(result);
    call.results.push_back({is_list, is_list ? result.cast<std::vector<SlotId>>()
                                             : std::vector<SlotId>{result.cast<SlotId>()}});
  }
  TORCH_CHECK(call.results.size() == call.op.schema().returns().size(), name, " returns ",
              call.op.schema().returns().size(), " values, not ", call.results.size());
  read(given, "scratch", call.scratch);
  read(given, "unread", call.unread);
  read(given, "bumped", call.bumped);
  read(given, "random", call.random);
  read(given, "replays", call.replays);
  read(given, "renewal", call.renewal);
  read(given, "tail", call.tail);
  read(given, "device", call.device);
  read(given, "where", call.where);
  return call;
}

Operation operation_from(const py::handle& given) {
  Operation operation;
  read(given, "calls", operation.calls);
  read(given, "made", operation.made);
  read(given, "read", operation.read);
  for (const py::handle item : given.attr("takeovers")) {
    const auto [value, source, target] = item.cast<std::tuple<std::int32_t, SlotId, SlotId>>();
    operation.takeovers.push_back({value, source, target});
  }
  return operation;
}

std::shared_ptr<Program> program_from(const py::handle& given) {
  auto program = std::make_shared<Program>();
  for (const py::handle call : given.attr("calls")) program->calls.push_back(call_from(call));
  for (const py::handle operation : given.attr("operations")) {
    program->operations.push_back(operation_from(operation));
  }
  read(given, "slots_of_value", program->slots_of_value);
  read(given, "view_of_slot", program->view_of_slot);
  read(given, "value_of_slot", program->value_of_slot);
  read(given, "outside", program->outside);
  read(given, "inputs", program->inputs);
  read(given, "constants", program->constants);
  read(given, "fresh", program->fresh);
  read(given, "remembered", program->remembered);
  read(given, "outputs", program->outputs);
  read(given, "differentiable", program->differentiable);
  read(given, "tangents", program->tangents);
  read(given, "gradients", program->gradients);
  read(given, "reached", program->reached);
  return program;
}

// Asked for another backward: its tangents, whether autocast is on, whether values were shed.
using Other =
    std::function<std::shared_ptr<Schedule>(const std::vector<Tangent>&, bool autocast, bool)>;

// Runs one call `times` times on the given tensors. Returns seconds a run, and the results by slot.
py::tuple run_alone(const std::shared_ptr<Program>& program, CallId call,
                    const std::vector<std::pair<SlotId, at::Tensor>>& tensors, int times,
                    std::int32_t parts, bool at_once) {
  Frame frame(*program);
  for (const auto& [slot, tensor] : tensors) frame.slots[at(slot)] = tensor;
  double seconds = 0;
  {
    const py::gil_scoped_release release;
    const BelowAutograd below;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
      run_call(*program,
               {.kind = Instruction::Kind::call, .at_once = at_once, .parts = parts, .call = call},
               frame);
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

// Held while a graph is recorded: one at a time, whichever threads ask. Who waits does so without
// the interpreter, which the other may want.
std::unique_lock<std::recursive_mutex> one_recording() {
  static std::recursive_mutex mutex;
  std::unique_lock lock(mutex, std::defer_lock);
  const py::gil_scoped_release without_interpreter;
  lock.lock();
  return lock;
}

void record_graph(CudaGraph& graph, const std::function<void()>& work) {
  const auto alone = one_recording();
  graph.record(work);
}

Taken record_step(GraphedStep& step, const std::vector<at::Tensor>& inputs) {
  const auto alone = one_recording();
  const py::gil_scoped_release without_interpreter;
  return step.record(inputs);
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
               [](const std::shared_ptr<Program>& program, const std::vector<std::int32_t>& steps,
                  const std::map<CallId, std::int32_t>& parts, const std::vector<CallId>& renewed,
                  const std::vector<CallId>& at_once, bool gives_back) {
                 return std::make_shared<Schedule>(
                     make_schedule(program, steps, {parts, renewed, at_once, gives_back}));
               }),
           py::arg("program"), py::arg("steps"),
           py::arg("parts") = std::map<CallId, std::int32_t>{},
           py::arg("renewed") = std::vector<CallId>{}, py::arg("at_once") = std::vector<CallId>{},
           py::arg("gives_back") = false)
      .def_readonly("instructions", &Schedule::instructions)
      .def_readonly("forward_end", &Schedule::forward_end);
  py::class_<Instruction> instruction(module, "Instruction");
  py::enum_<Instruction::Kind>(instruction, "Kind")
      .value("call", Instruction::Kind::call)
      .value("take", Instruction::Kind::take)
      .value("copy", Instruction::Kind::copy)
      .value("clear", Instruction::Kind::clear)
      .value("stash", Instruction::Kind::stash)
      .value("unstash", Instruction::Kind::unstash);
  instruction.def_readonly("kind", &Instruction::kind)
      .def_readonly("save_random", &Instruction::save_random)
      .def_readonly("replay_random", &Instruction::replay_random)
      .def_readonly("again", &Instruction::again)
      .def_readonly("at_once", &Instruction::at_once)
      .def_readonly("parts", &Instruction::parts)
      .def_readonly("call", &Instruction::call)
      .def_readonly("slot", &Instruction::slot)
      .def_readonly("target", &Instruction::target)
      .def_readonly("step", &Instruction::step);

  py::class_<Taken>(module, "Taken")
      .def_readonly("whole", &Taken::whole)
      .def_readonly("peak", &Taken::peak)
      .def_readonly("inside_peak", &Taken::inside_peak)
      .def_readonly("outside_peak", &Taken::outside_peak)
      .def_readonly("forward_end", &Taken::forward_end)
      .def_readonly("backward_begin", &Taken::backward_begin)
      .def_readonly("had_gradient", &Taken::had_gradient)
      .def_readonly("peaks", &Taken::peaks)
      .def_readonly("before", &Taken::before);
  py::class_<Prepared, std::shared_ptr<Prepared>>(module, "Prepared")
      .def(py::init([](std::shared_ptr<Schedule> schedule, std::vector<Tangent> tangents,
                       bool autocast, const Other& other,
                       std::function<std::shared_ptr<Schedule>()> tighter,
                       std::function<void(const Taken&)> finished,
                       std::optional<c10::Device> measured, bool by_instruction,
                       std::shared_ptr<GraphedStep> graphed,
                       std::function<void(const std::string&)> not_graphed) {
             auto prepared = std::make_shared<Prepared>();
             prepared->schedule = std::move(schedule);
             prepared->expected = {std::move(tangents), autocast};
             prepared->other = [other](const BackwardCase& actual, bool was_shed) {
               return other(actual.tangents, actual.autocast, was_shed);
             };
             prepared->tighter = std::move(tighter);
             prepared->finished = [finished = std::move(finished)](const Taken& taken) {
               const py::gil_scoped_acquire acquire;
               const py::error_scope in_flight;  // a step may end while an exception is on its way
               try {
                 finished(taken);
               } catch (py::error_already_set& error) {
                 error.discard_as_unraisable("reprise");
               }
             };
             prepared->measured = measured;
             prepared->by_instruction = by_instruction;
             prepared->graphed = std::move(graphed);
             prepared->not_graphed = std::move(not_graphed);
             return prepared;
           }),
           py::arg("schedule"), py::arg("tangents"), py::arg("autocast"), py::arg("other"),
           py::arg("tighter"), py::arg("finished"), py::arg("measured"), py::arg("by_instruction"),
           py::arg("graphed"), py::arg("not_graphed"));
  py::class_<GraphMemory, std::shared_ptr<GraphMemory>>(module, "GraphMemory")
      .def(py::init<c10::Device>())
      .def_property_readonly("is_busy", &GraphMemory::is_busy)
      .def("settle", torch::wrap_pybind_function(&GraphMemory::settle))
      .def("enter", [](const GraphMemory& memory) { memory.pool->enter(); })
      .def("leave", [](const GraphMemory& memory) { memory.pool->leave(); })
      .def_property_readonly("pool_id",
                             [](const GraphMemory& memory) { return memory.pool->id(); });
  py::class_<CudaGraph>(module, "CudaGraph")
      .def(py::init([](const GraphMemory& memory, std::size_t turns) {
             return std::make_unique<CudaGraph>(memory.pool, turns);
           }),
           py::arg("memory"), py::arg("turns") = 0)
      .def("record", torch::wrap_pybind_function(&record_graph))
      .def("replay", [](CudaGraph& graph) { graph.replay(); });
  py::class_<GraphedStep, std::shared_ptr<GraphedStep>>(module, "GraphedStep")
      .def(py::init<std::shared_ptr<GraphMemory>, std::shared_ptr<Schedule>,
                    std::vector<std::optional<at::Tensor>>, std::vector<bool>, std::vector<Tangent>,
                    bool, std::size_t>(),
           py::arg("memory"), py::arg("schedule"), py::arg("copies"), py::arg("stays"),
           py::arg("tangents"), py::arg("may_add"), py::arg("most_waiting"))
      .def("record", torch::wrap_pybind_function(&record_step))
      .def("end", &GraphedStep::end)
      .def("has_moved", &GraphedStep::has_moved)
      .def("are_at_their_sums", &GraphedStep::are_at_their_sums);
  py::class_<Begun>(module, "Begun").def("shed", &Begun::shed);
  module.def("sharing_of", &sharing_of, py::arg("tensors"), py::arg("matters"));
  // Errors become torch's own: out of memory is torch.OutOfMemoryError.
  module.def("run_step", torch::wrap_pybind_function_no_gil(&run_step));
  module.def("run_alone", torch::wrap_pybind_function(&run_alone), py::arg("program"),
             py::arg("call"), py::arg("tensors"), py::arg("times"), py::arg("parts") = 1,
             py::arg("at_once") = false);

  module.def("copy_into", torch::wrap_pybind_function(&copy_into));
  module.def("changed_inputs", &changed_inputs);
  module.def("random_turns", [](const Schedule& schedule) {
    return random_turns(schedule, 0, schedule.instructions.size());
  });
  module.def("install_memory_probe", &install_memory_probe);
  module.def("bytes_in_use", &bytes_in_use);
  module.def("is_counted", [](const at::Tensor& tensor) {
    return is_counted(tensor.storage().data_ptr().get_context());
  });
  py::class_<PeakMeter>(module, "PeakMeter")
      .def(py::init<c10::Device>())
      .def_property_readonly("peak", &PeakMeter::peak);
}
