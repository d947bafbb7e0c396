# SPDX-License-Identifier: Apache-2.0
"""reprise.Step: forward, loss, backward and optimizer as one CUDA graph."""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from . import _torch
from .at_hand import at_hand, attributes
from .errors import RepriseError
from .facts import Facts
from .kernels import kernel_settings
from .module import compile
from .words import first_line

log = logging.getLogger("reprise")

_WARM = 4  # updates that run as they are: libraries set themselves up, optimizers make their state
_PATIENCE = 3  # changes of the optimizer's settings, of a plan or of tensors, after which no more are waited for
_WORTH_IT = 10  # replays
_PLAIN = (int, float, bool, str, type(None))  # what arguments may be, tensors aside


class Role(NamedTuple):
    """Of a call, among those that make an update."""

    is_first: bool
    is_last: bool


@dataclass
class _Recorded:
    graph: _torch.CudaGraph
    loss: torch.Tensor
    gradients: list[tuple[nn.Parameter, torch.Tensor | None]]  # that are there after it
    touched: list[torch.Tensor]  # what it reads and writes: held, so that nothing else comes to lie there
    replays: int = 0


@dataclass
class _Shape:
    """What was seen of one shape of inputs."""

    calls: int = 0  # since it is the step that it is
    state: tuple | None = None  # what it was when it last ran as it is
    wasted: int = 0  # recordings in a row that were replayed a few times only
    given: Any = None  # args and kwargs, where the step reads them: inputs are copied there
    facts: dict[Role, list[Facts]] = field(default_factory=dict)  # of the last call as it is
    recorded: dict[Role, _Recorded] = field(default_factory=dict)
    failures: int = 0  # to record

    def forget(self) -> None:
        """It is another step now, which has to be planned, and run as it is, first."""
        self.recorded.clear()
        self.calls = 0


class Step:
    """One training step of `model`, called with its inputs and the target; returns the loss.

    >>> step = reprise.Step(model, nn.functional.cross_entropy, optimizer, budget="6GiB")
    >>> for x, target in loader:
    ...     loss = step(x, target)

    On a GPU the whole step is recorded once for each shape of its inputs and replayed from then on, with new inputs
    copied in; where that can't be, it runs as it is, and `reason` says why. It is recorded anew where tensors of the
    model, of the loss or of the optimizer's state are replaced, modules change between training and evaluation, or
    parameters are frozen. A model's tensors are its parameters, buffers and attributes; a loss has those of modules,
    attributes, closures and arguments of a partial. Numbers that they have, and globals, are not looked at again.
    Gradients belong to the step, which clears them when an update begins: between calls they are None or undefined.

    Learning rates may change: `fused` optimizers and those that are `capturable` (which is switched on) read them from
    the device. For others the step is recorded anew, and after a few times the optimizer runs beside the graph.

    accumulate: how many calls make an update; their gradients are summed up.
    shapes: how many shapes of inputs keep their plans and graphs.
    options: others of reprise.compile, `executor` aside.
    """

    def __init__(self, model: nn.Module, loss_fn: Callable, optimizer: torch.optim.Optimizer,
                 budget: int | str = "auto", *, accumulate: int = 1, shapes: int = 8, **options):
        if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
            raise ValueError(f"accumulate={accumulate!r}: want a whole number of at least 1")
        if "executor" in options:
            raise ValueError("reprise.Step has its own executor: leave executor= out")
        self.model = compile(model, budget, loss=loss_fn, executor="native", shapes=shapes, **options)
        self._loss_fn = loss_fn
        _refuse(optimizer, {parameter for part in self._parts() for parameter in part.parameters(recurse=False)})
        self.optimizer = optimizer
        self.accumulate = accumulate
        self._most_shapes = shapes
        self._device = _only_device(self.model)
        self.reason = None if _has_graphs(self._device) else f"the model is on {self._device}"
        self._memory = _torch.GraphMemory(self._device) if self.reason is None else None
        self._calls = 0
        self._in_vain = 0  # calls in a row that ran as they are
        self._shapes: OrderedDict[Any, _Shape] = OrderedDict()
        self._rates: dict[int, torch.Tensor] = {}  # learning rates on the device, by group
        self._settings: list[dict] = []  # of the optimizer, that are part of a recording
        self._changes = 0  # of these
        self._gradients: dict[nn.Parameter, torch.Tensor] = {}  # those that outlast a call, the same for all shapes
        self._is_beside = not _can_be_recorded(optimizer)
        self._adopt_optimizer()
        adopt = weakref.WeakMethod(self._adopt_optimizer)  # an optimizer may outlive the step
        handle = optimizer.register_load_state_dict_post_hook(lambda _: adopt() and adopt()())
        weakref.finalize(self, handle.remove)

    def __call__(self, *args, **kwargs) -> torch.Tensor:
        if not self.model.training:
            raise RepriseError("reprise.Step trains: call model.train() first, or the model itself to evaluate")
        role = Role(self._calls % self.accumulate == 0, (self._calls + 1) % self.accumulate == 0)
        given = (args, kwargs)
        if self.reason is None and (other := self._unfit(given)) is not None:
            self._turn_off(other)
        shape = self._shape_of(given)
        with self._after_the_last():
            for parameter, gradient in self._gradients.items() if self.accumulate > 1 else ():
                parameter.grad = gradient
            if self.reason is None:
                self._look_at_settings()
                given = self._copied(shape, given)
                self._record_if_due(shape, role)
            is_recorded = role in shape.recorded
            loss = self._replay(shape.recorded[role]) if is_recorded else self._run(shape, role, given)
            if role.is_last and self._is_beside:
                self.optimizer.step()
            if not is_recorded and self.reason is None:
                shape.state = self._state()
        shape.calls += 1
        self._calls += 1
        self._in_vain = 0 if is_recorded else self._in_vain + 1
        return loss

    @contextlib.contextmanager
    def _after_the_last(self) -> Iterator[None]:
        """Steps may run on one stream or another: they share memory, and so each waits for the one before."""
        if self._memory is None:
            yield
            return
        self._memory.enter()
        try:
            yield
        finally:
            self._memory.leave()

    def _run(self, shape: _Shape, role: Role, given: tuple) -> torch.Tensor:
        """As it is."""
        with self._rates_on_device():
            loss = self._work(role, given).detach()
        shape.facts[role] = self.model._reprise_state.facts
        if self.accumulate > 1:
            self._gradients = {p: p.grad for p in self._parameters() if p.grad is not None}
        return loss

    def _work(self, role: Role, given: tuple) -> torch.Tensor:
        args, kwargs = given
        if role.is_first:
            self._clear_gradients()
        loss = self.model(*args, **kwargs)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise RepriseError(f"the loss is {what}: want a tensor of one element")
        loss.backward()
        if role.is_last and not self._is_beside:
            self.optimizer.step()
        return loss

    def _clear_gradients(self) -> None:
        for parameter in self._parameters():
            if self.accumulate == 1:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    def _unfit(self, given: tuple) -> str | None:
        """Why a graph can't take these arguments, if it can't."""
        for leaf in tree_leaves(given):
            if not isinstance(leaf, (torch.Tensor, *_PLAIN)):
                return f"an argument is a {type(leaf).__name__}"
            if isinstance(leaf, torch.Tensor) and leaf.device != self._device:
                return f"an argument is a {type(leaf).__name__} on {leaf.device}"
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                return "an argument wants a gradient"
        return None

    def _copied(self, shape: _Shape, given: tuple) -> tuple:
        """The arguments in memory of the step's own, from its first call on: plans know of it."""
        if shape.given is None:
            shape.given = tree_map(_empty_as, given)
        for place, tensor in zip(_tensors(shape.given), _tensors(given)):
            _torch.copy_into(place, tensor)
        return shape.given

    def _record_if_due(self, shape: _Shape, role: Role) -> None:
        state = self._state()
        if shape.recorded and shape.state != state:
            hardly_ran = any(recorded.replays < _WORTH_IT for recorded in shape.recorded.values())
            shape.wasted = shape.wasted + 1 if hardly_ran else 0
            if shape.wasted == _PATIENCE:
                self._turn_off("tensors of the model, of the loss or of the optimizer are replaced time and again")
                return
        for other in self._shapes.values():
            if other.state != state:
                other.forget()
        if role in shape.recorded:
            return
        if self._is_due(shape, role):
            self._record(shape, role)
        elif self._in_vain >= 2 * _WARM * self.accumulate * (self._most_shapes + _PATIENCE):
            self._turn_off(f"inputs have more than {self._most_shapes} shapes, or numbers or tensors change from call "
                           "to call")

    def _is_due(self, shape: _Shape, role: Role) -> bool:
        if role not in shape.facts or shape.calls < _WARM * self.accumulate:
            return False
        return all(facts.is_settled for facts in shape.facts[role]) or shape.calls >= 2 * _WARM * self.accumulate

    def _record(self, shape: _Shape, role: Role) -> None:
        facts, parameters = shape.facts[role], self._parameters()
        elsewhere = next((each.step.off_device for each in facts if each.step.off_device), None)
        if elsewhere is not None:
            self._turn_off(elsewhere)
            return
        for parameter in parameters if self._hands_over else ():
            if parameter.grad is not None and parameter not in self._gradients:
                self._gradients[parameter] = torch.empty_like(parameter.grad)
        before, touched = [parameter.grad for parameter in parameters], self._touched(self._parts())
        turns = sum(_torch.random_turns(each.step.schedule(each.plan)) for each in facts)
        graph, losses = _torch.CudaGraph(self._memory, turns), []
        gc.collect()  # memory of other graphs can't be given back while this one is recorded
        torch.cuda.empty_cache()  # what steps before have left would lie beside the graph's own memory
        random_states = torch.get_rng_state(), torch.cuda.get_rng_state(self._device)
        try:
            with self._rates_on_device():
                graph.record(lambda: losses.append(self._recorded_work(role, shape.given)))
        except Exception as error:  # nothing of it has run: if it is wrong, it is so as it is
            torch.set_rng_state(random_states[0])
            torch.cuda.set_rng_state(random_states[1], self._device)
            for parameter, gradient in zip(parameters, before):
                parameter.grad = gradient
            shape.failures += 1
            ran = self.model._reprise_state.facts  # of several graphs those up to the one that failed
            if ran != facts[:len(ran)] and shape.failures < _PATIENCE:
                shape.calls = 0  # by another plan, which has to run as it is first
            else:
                self._turn_off(first_line(error) or type(error).__name__)
            return
        if self.accumulate == 1 and not self._is_beside:  # they are the graph's own
            self._clear_gradients()
        gradients = [(parameter, parameter.grad) for parameter in parameters]
        shape.recorded[role] = _Recorded(graph, losses[0], gradients, touched)

    @property
    def _hands_over(self) -> bool:
        """Does a graph hand its gradients to an optimizer beside it?"""
        return self._is_beside and self.accumulate == 1

    def _recorded_work(self, role: Role, given: tuple) -> torch.Tensor:
        """Gradients that outlast it lie in one place, whichever graph made them."""
        loss = self._work(role, given).detach()
        for parameter in self._parameters() if self._hands_over else ():
            if parameter.grad is not None and parameter not in self._gradients:
                raise RuntimeError("a parameter gets a gradient that got none before")
            if parameter.grad is not None:
                parameter.grad = self._gradients[parameter].copy_(parameter.grad)
        return loss

    def _replay(self, recorded: _Recorded) -> torch.Tensor:
        for parameter, gradient in recorded.gradients:
            parameter.grad = gradient
        self._move_rates()
        recorded.graph.replay()
        recorded.replays += 1
        return recorded.loss.clone()

    def _turn_off(self, reason: str) -> None:
        self.reason = reason
        log.warning("no CUDA graph of the whole step: %s", reason)
        self._forget()
        for shape in self._shapes.values():
            shape.given = None

    def _forget(self) -> None:
        """All recordings: what is another step now runs as it is first, so that its state is made outside of them."""
        self._in_vain = 0
        for shape in self._shapes.values():
            shape.forget()

    def _parts(self) -> list[nn.Module]:
        """All modules of the model and of the loss."""
        of_loss, _ = at_hand(self._loss_fn)
        return list(dict.fromkeys(part for module in (self.model, *of_loss) for part in module.modules()))

    def _parameters(self, parts: list[nn.Module] | None = None) -> list[nn.Parameter]:
        """All that may have gradients; `parts`, where they are known."""
        own = [parameter for part in parts or self._parts() for parameter in part._parameters.values()
               if parameter is not None]
        of_optimizer = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return list(dict.fromkeys([*own, *of_optimizer]))

    def _touched(self, parts: list[nn.Module]) -> list[torch.Tensor]:
        """What a step reads and writes. Attributes that are no leaves were left by the step before: one that read them
        would go through its backward again, which fails."""
        of_parts = [tensor for part in parts for tensor in (*part._buffers.values(), *attributes(part))
                    if tensor is not None]
        _, of_loss = at_hand(self._loss_fn)
        states = _tensors([list(self.optimizer.state.values()), *map(_recorded_settings, self.optimizer.param_groups)])
        return [*self._parameters(parts), *(tensor for tensor in (*of_parts, *of_loss) if tensor.is_leaf),
                *(tensor for tensor in states if tensor.device == self._device)]

    def _state(self) -> tuple:
        parts = self._parts()
        return ([_place(tensor) for tensor in self._touched(parts)],
                [parameter.requires_grad for parameter in self._parameters(parts)],
                [part.training for part in parts], kernel_settings())

    def _shape_of(self, given: tuple) -> _Shape:
        leaves, spec = tree_flatten(given)
        key = (repr(spec), *((tuple(t.shape), t.stride(), t.dtype, t.device) if isinstance(t, torch.Tensor) else repr(t)
                       for t in leaves), torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
        self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        while len(self._shapes) > self._most_shapes:
            self._shapes.popitem(last=False)
        return self._shapes[key]

    def _adopt_optimizer(self) -> None:
        """Makes its settings and state fit for a graph, and forgets graphs of others."""
        if self._memory is not None and not self._is_beside:
            for group in self.optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = True
            for state in self.optimizer.state.values():  # counters, which may be on the host
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and not value.dim():
                        state[name] = value.to(self._device)
        self._changes, self._settings = 0, self._current_settings()
        self._forget()

    def _look_at_settings(self) -> None:
        """Settings of the optimizer that are part of what was recorded, and hooks, which can't be."""
        if self._is_beside:
            return
        settings, before = self._current_settings(), self._settings
        self._settings = settings
        self._changes += settings != before
        if self._changes == _PATIENCE or not _can_be_recorded(self.optimizer):
            log.info("the optimizer has hooks, or its settings change again and again: it runs beside the graph")
            self._is_beside = True
        if self._is_beside or settings != before:
            self._forget()

    def _current_settings(self) -> list[dict]:
        """Tensors on the host by value, others by where they lie."""
        def known(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value.tolist() if value.device.type == "cpu" else value.data_ptr()

        return [tree_map(known, _recorded_settings(group)) for group in self.optimizer.param_groups]

    def _move_rates(self) -> None:
        for i, place in self._rates.items():
            rate = self.optimizer.param_groups[i]["lr"]
            place.fill_(rate.reshape(()) if isinstance(rate, torch.Tensor) else rate)

    @contextlib.contextmanager
    def _rates_on_device(self) -> Iterator[None]:
        """Learning rates that the optimizer can read from the device are there, in a place of the step's own, while it
        runs."""
        groups = self.optimizer.param_groups
        moved = {i: group["lr"] for i, group in enumerate(groups) if _reads_rates(group) and self._memory is not None}
        for i, rate in moved.items():
            dtype = rate.dtype if isinstance(rate, torch.Tensor) else torch.float32
            self._rates.setdefault(i, torch.zeros((), dtype=dtype, device=self._device))
        self._move_rates()
        for i in moved:
            groups[i]["lr"] = self._rates[i]
        try:
            yield
        finally:
            for i, rate in moved.items():
                groups[i]["lr"] = rate


def _has_graphs(device: torch.device) -> bool:
    return device.type == "cuda"


def _reads_rates(group: dict) -> bool:
    return bool(group.get("capturable") or group.get("fused"))


def _recorded_settings(group: dict) -> dict:
    """All but a learning rate that is read from the device."""
    return {name: value for name, value in group.items()
            if name != "params" and not (name == "lr" and _reads_rates(group))}


def _can_be_recorded(optimizer: torch.optim.Optimizer) -> bool:
    """Does it keep nothing on the host that changes from step to step?"""
    if (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks):
        return False
    return type(optimizer) is torch.optim.SGD or all(
        "capturable" in group or group.get("fused") for group in optimizer.param_groups)


def _refuse(optimizer: torch.optim.Optimizer, parameters: set[nn.Parameter]) -> None:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise RepriseError(f"{type(optimizer).__name__} computes the loss several times in an update, "
                           "and reprise.Step once: write a loop around reprise.compile")
    if not any(parameter in parameters for group in optimizer.param_groups for parameter in group["params"]):
        raise RepriseError("the optimizer has none of the model's parameters")


def _empty_as(leaf: Any) -> Any:
    """A tensor that lies as this one; others as they are."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """Which tensor it is, and where it lies."""
    return id(tensor), tensor.data_ptr() if tensor.layout is torch.strided else 0


def _tensors(given: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]


def _only_device(model: nn.Module) -> torch.device:
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        raise RepriseError(f"reprise.Step wants a model on one device, not on {', '.join(sorted(map(str, devices)))}"
                           if devices else "reprise.Step wants a model that has parameters")
    return devices.pop()
