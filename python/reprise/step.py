# SPDX-License-Identifier: Apache-2.0
"""reprise.Step: forward, loss, backward and optimizer as one CUDA graph."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from . import _torch
from .errors import RepriseError
from .kernels import kernel_settings
from .module import compile
from .words import first_line

log = logging.getLogger("reprise")

_WARM = 4  # updates that run as they are: libraries set themselves up, optimizers make their state
_SHAPES = 8  # whose graphs are kept
_PATIENCE = 3  # changes of the optimizer's settings after which it runs beside the graph
_PLAIN = (int, float, bool, str, type(None))  # what arguments may be, tensors aside

Role = tuple[bool, bool]  # of a call: the first, and the last, of an update


@dataclass
class _Recorded:
    graph: _torch.CudaGraph
    given: list[torch.Tensor]  # where inputs are copied to
    loss: torch.Tensor
    gradients: list[torch.Tensor | None]
    touched: list[torch.Tensor]  # what it reads and writes: held, so that nothing else comes to lie there
    state: tuple  # what it was recorded for


@dataclass
class _Shape:
    """What was seen of one shape of inputs."""

    calls: int = 0
    recorded: dict[Role, _Recorded] = field(default_factory=dict)


class Step:
    """One training step of `model`, called with its inputs and the target; returns the loss.

    >>> step = reprise.Step(model, nn.functional.cross_entropy, optimizer, budget="6GiB")
    >>> for x, target in loader:
    ...     loss = step(x, target)

    On a GPU the whole step is recorded once for each shape of its inputs and replayed from then on, with new inputs
    copied in; where that can't be, it runs as it is, and `reason` says why. It is recorded anew where tensors of the
    model or of the optimizer's state are replaced, modules change between training and evaluation, or parameters are
    frozen; other attributes of modules are not looked at again. Gradients belong to the step: between calls they are
    None or undefined.

    Learning rates may change: `fused` optimizers and those that are `capturable` (which is switched on) read them from
    the device. For others the step is recorded anew, and after a few times the optimizer runs beside the graph.

    accumulate: how many calls make an update; their gradients are summed up.
    options: those of reprise.compile, `executor` aside.
    """

    def __init__(self, model: nn.Module, loss_fn: Callable, optimizer: torch.optim.Optimizer,
                 budget: int | str = "auto", *, accumulate: int = 1, **options):
        if accumulate < 1:
            raise ValueError(f"accumulate={accumulate}: want at least 1")
        self.model = compile(model, budget, loss=loss_fn, executor="native", **options)
        self.optimizer = optimizer
        self.accumulate = accumulate
        self._device = _only_device(self.model)
        self.reason = None if self._device.type == "cuda" else f"the model is on {self._device}"
        self._memory = _torch.GraphMemory(self._device) if self.reason is None else None
        self._calls = 0
        self._shapes: OrderedDict[Any, _Shape] = OrderedDict()
        self._rates: dict[int, torch.Tensor] = {}  # learning rates on the device, by group
        self._is_beside = not _can_be_recorded(optimizer)
        self._take_optimizer()
        optimizer.register_load_state_dict_post_hook(lambda _: self._take_optimizer())

    def __call__(self, *args, **kwargs) -> torch.Tensor:
        if not self.model.training:
            raise RepriseError("reprise.Step trains: call model.train() first, or the model itself to evaluate")
        role = (self._calls % self.accumulate == 0, (self._calls + 1) % self.accumulate == 0)
        shape = self._shape_of(args, kwargs)
        if self.reason is None:
            self._look_at_numbers()
            self._record_if_due(shape, role, args, kwargs)
        if role in shape.recorded:
            loss = self._replay(shape.recorded[role], args, kwargs)
        else:
            with self._rates_on_device():
                loss = self._work(role, args, kwargs).detach()
        if role[1] and self._is_beside:
            self.optimizer.step()
        shape.calls += 1
        self._calls += 1
        return loss

    def _work(self, role: Role, args: tuple, kwargs: dict) -> torch.Tensor:
        is_first, is_last = role
        if is_first:
            self._zero_gradients()
        loss = self.model(*args, **kwargs)
        loss.backward()
        if is_last and not self._is_beside:
            self.optimizer.step()
        return loss

    def _zero_gradients(self) -> None:
        for parameter in self._parameters():
            if self.accumulate == 1 or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    def _record_if_due(self, shape: _Shape, role: Role, args: tuple, kwargs: dict) -> None:
        if role in shape.recorded and shape.recorded[role].state != self._state():
            shape.recorded.clear()
            shape.calls = 0  # what is another step now has to be planned, and run as it is, first
        if role in shape.recorded or shape.calls < _WARM * self.accumulate:
            return
        if (other := next((a for a in tree_leaves((args, kwargs)) if not self._is_plain(a)), None)) is not None:
            where = f" on {other.device}" if isinstance(other, torch.Tensor) else ""
            self._turn_off(f"an argument is a {type(other).__name__}{where}")
            return
        self._record(shape, role, args, kwargs)

    def _is_plain(self, argument: Any) -> bool:
        return isinstance(argument, _PLAIN) or (isinstance(argument, torch.Tensor) and argument.device == self._device)

    def _record(self, shape: _Shape, role: Role, args: tuple, kwargs: dict) -> None:
        given = tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, (args, kwargs))
        graph, losses = _torch.CudaGraph(self._memory, self._turns()), []
        torch.cuda.empty_cache()  # what steps before have left would lie beside the graph's own memory
        random_state = torch.cuda.get_rng_state(self._device)
        try:
            with self._rates_on_device():
                graph.record(lambda: losses.append(self._work(role, *given).detach()))
        except Exception as error:  # nothing of it has run: if it is wrong, it is so as it is
            torch.cuda.set_rng_state(random_state, self._device)
            self._turn_off(first_line(error) or type(error).__name__)
            return
        stay = self.accumulate > 1 or self._is_beside  # gradients: else they are the graph's own
        gradients = [parameter.grad for parameter in self._parameters()] if stay else []
        shape.recorded[role] = _Recorded(graph, _tensors(given), losses[0], gradients, self._touched(), self._state())
        if not stay:
            self._zero_gradients()

    def _replay(self, recorded: _Recorded, args: tuple, kwargs: dict) -> torch.Tensor:
        with torch.no_grad():
            for place, tensor in zip(recorded.given, _tensors((args, kwargs))):
                place.copy_(tensor)
        for parameter, gradient in zip(self._parameters(), recorded.gradients):
            parameter.grad = gradient
        self._move_rates()
        recorded.graph.replay()
        return recorded.loss.clone()

    def _turns(self) -> int:
        """How often random calls go back, at the most, whichever plan is recorded."""
        sessions = [session for _, session in self.model._reprise_state._entries.values()]
        return max(sum(_torch.random_turns(graph.facts.step.schedule(graph.facts.plan)) for graph in session.ran)
                   for session in sessions)

    def _turn_off(self, reason: str) -> None:
        self.reason = reason
        log.warning("no CUDA graph of the whole step: %s", reason)
        self._forget()

    def _forget(self) -> None:
        for shape in self._shapes.values():
            shape.recorded.clear()
        if self.accumulate == 1:
            self._zero_gradients()

    def _parameters(self) -> list[nn.Parameter]:
        """All that may have gradients."""
        of_optimizer = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return list(dict.fromkeys([*self.model.parameters(), *of_optimizer]))

    def _touched(self) -> list[torch.Tensor]:
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self._parameters(), *self.model.buffers(), *(v for v in states if isinstance(v, torch.Tensor))]

    def _state(self) -> tuple:
        return ([tensor.data_ptr() for tensor in self._touched()], [p.requires_grad for p in self._parameters()],
                [module.training for module in self.model.modules()], kernel_settings(), self._is_beside)

    def _shape_of(self, args: tuple, kwargs: dict) -> _Shape:
        key = tuple((tuple(t.shape), t.stride(), t.dtype, t.device) if isinstance(t, torch.Tensor) else repr(t)
                    for t in tree_leaves((args, kwargs)))
        key += (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
        self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        while len(self._shapes) > _SHAPES:
            self._shapes.popitem(last=False)
        return self._shapes[key]

    def _take_optimizer(self) -> None:
        """Its settings and state, as they are now."""
        groups = self.optimizer.param_groups
        if self._device.type == "cuda" and not self._is_beside:
            for group in groups:
                if "capturable" in group:
                    group["capturable"] = True
            for state in self.optimizer.state.values():
                if isinstance(state.get("step"), torch.Tensor):
                    state["step"] = state["step"].to(self._device)
        self._changes, self._numbers = 0, _numbers(self.optimizer)
        self._forget()

    def _look_at_numbers(self) -> None:
        """Settings that are part of what was recorded."""
        numbers = _numbers(self.optimizer)
        if numbers == self._numbers or self._is_beside:
            return
        self._numbers = numbers
        self._changes += 1
        if self._changes == _PATIENCE:
            log.info("the optimizer's settings change again and again: it runs beside the graph")
            self._is_beside = True
        self._forget()

    def _move_rates(self) -> None:
        for i, group in enumerate(self.optimizer.param_groups):
            if i in self._rates and not isinstance(group["lr"], torch.Tensor):
                self._rates[i].fill_(group["lr"])

    @contextlib.contextmanager
    def _rates_on_device(self) -> Iterator[None]:
        """Learning rates that the optimizer can read from the device are there while it runs."""
        groups = self.optimizer.param_groups
        moved = {i: group["lr"] for i, group in enumerate(groups)
                 if _reads_rates(group) and self._device.type == "cuda" and not isinstance(group["lr"], torch.Tensor)}
        for i in moved:
            self._rates.setdefault(i, torch.zeros((), device=self._device))
        self._move_rates()
        for i in moved:
            groups[i]["lr"] = self._rates[i]
        try:
            yield
        finally:
            for i, rate in moved.items():
                groups[i]["lr"] = rate


def _reads_rates(group: dict) -> bool:
    return bool(group.get("capturable") or group.get("fused"))


def _can_be_recorded(optimizer: torch.optim.Optimizer) -> bool:
    """Does it keep nothing on the host that changes from step to step?"""
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return False
    return type(optimizer) is torch.optim.SGD or all(
        "capturable" in group or group.get("fused") for group in optimizer.param_groups)


def _numbers(optimizer: torch.optim.Optimizer) -> list[dict]:
    """Those that the optimizer does not read from the device."""
    return [{name: value for name, value in group.items() if name != "params" and not isinstance(value, torch.Tensor)
             and not (name == "lr" and _reads_rates(group))} for group in optimizer.param_groups]


def _tensors(given: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]


def _only_device(model: nn.Module) -> torch.device:
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        raise RepriseError(f"reprise.Step wants a model on one device, not on {len(devices)}")
    return devices.pop()
