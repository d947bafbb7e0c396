# SPDX-License-Identifier: Apache-2.0
"""reprise.Step: forward, loss, backward and optimizer as one CUDA graph."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from . import _torch
from .errors import RepriseError
from .module import compile

log = logging.getLogger("reprise")

_WARM = 4  # updates that run as they are: libraries set themselves up, optimizers make their state
_SHAPES = 8  # whose graphs are kept
_PATIENCE = 3  # how often graphs are recorded anew because settings of the optimizer changed

Role = tuple[bool, bool]  # of a call: the first, and the last, of an update


@dataclass
class _Recorded:
    graph: _torch.CudaGraph
    given: list[torch.Tensor]  # where inputs are copied to
    loss: torch.Tensor
    gradients: list[torch.Tensor | None]


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
    copied in; where that can't be, it runs as it is, and `reason` says why. Settings of the optimizer may change
    (learning rates): where it reads them from the device (`capturable`, `fused`), nothing else does; else the step is
    recorded anew, and after a few times the optimizer runs beside the graph. Gradients belong to the step: between
    calls they are None or undefined.

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
        self._settings = _Settings(optimizer, self._device)
        self._is_beside = False  # the optimizer runs beside the graph
        self._calls = 0
        self._shapes: OrderedDict[Any, _Shape] = OrderedDict()

    def __call__(self, *args, **kwargs) -> torch.Tensor:
        if not self.model.training:
            raise RepriseError("reprise.Step trains: call model.train() first, or the model itself to evaluate")
        role = (self._calls % self.accumulate == 0, (self._calls + 1) % self.accumulate == 0)
        self._calls += 1
        shape = self._shape_of(args, kwargs)
        shape.calls += 1
        if self._settings.have_changed():
            self._begin_anew()
        if self.reason is None and shape.calls > _WARM * self.accumulate and role not in shape.recorded:
            self._record(shape, role, args, kwargs)
        if role not in shape.recorded:
            loss = self._work(role, args, kwargs).detach()
        else:
            loss = self._replay(shape.recorded[role], args, kwargs)
        if role[1] and self._is_beside:
            self.optimizer.step()
        return loss

    def _work(self, role: Role, args: tuple, kwargs: dict) -> torch.Tensor:
        is_first, is_last = role
        if is_first:
            self.optimizer.zero_grad(set_to_none=self.accumulate == 1)
        loss = self.model(*args, **kwargs)
        loss.backward()
        if is_last and not self._is_beside:
            self.optimizer.step()
        return loss

    def _record(self, shape: _Shape, role: Role, args: tuple, kwargs: dict) -> None:
        given = tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, (args, kwargs))
        facts = self.model._reprise_state.facts
        turns = sum(_torch.random_turns(each.step.schedule(each.plan)) for each in facts)
        graph, losses = _torch.CudaGraph(self._memory, turns), []
        torch.cuda.empty_cache()  # what steps before have left would lie beside the graph's own memory
        try:
            graph.record(lambda: losses.append(self._work(role, *given).detach()))
        except RuntimeError as error:
            self.reason = str(error).splitlines()[0]
            log.warning("no CUDA graph of the whole step: %s", self.reason)
            self._begin_anew()
            return
        stay = self.accumulate > 1 or self._is_beside  # gradients: else they are the graph's own
        shape.recorded[role] = _Recorded(graph, _tensors(given), losses[0],
                                         [p.grad for p in self._parameters()] if stay else [])
        if not stay:
            self.optimizer.zero_grad()

    def _replay(self, recorded: _Recorded, args: tuple, kwargs: dict) -> torch.Tensor:
        for place, tensor in zip(recorded.given, _tensors((args, kwargs))):
            place.copy_(tensor)
        for parameter, gradient in zip(self._parameters(), recorded.gradients):
            parameter.grad = gradient
        recorded.graph.replay(self._device)
        return recorded.loss.clone()

    def _begin_anew(self) -> None:
        """Where what was recorded does not hold any more."""
        for shape in self._shapes.values():
            shape.recorded.clear()
        self._is_beside |= self._settings.changes >= _PATIENCE
        if self.accumulate == 1:
            self.optimizer.zero_grad()

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _shape_of(self, args: tuple, kwargs: dict) -> _Shape:
        key = tuple((tuple(t.shape), t.stride(), t.dtype, t.device) if isinstance(t, torch.Tensor) else repr(t)
                    for t in tree_leaves((args, kwargs))) + (torch.is_autocast_enabled("cuda"),)
        self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        while len(self._shapes) > _SHAPES:
            self._shapes.popitem(last=False)
        return self._shapes[key]


class _Settings:
    """Numbers in an optimizer's groups: in tensors where it reads them from there, else a part of what is recorded."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device):
        self._groups, self._device, self._rates = optimizer.param_groups, device, {}
        self.changes = 0
        if device.type == "cuda":
            for group in self._groups:
                if "capturable" in group:
                    group["capturable"] = True
            for state in optimizer.state.values():
                if isinstance(state.get("step"), torch.Tensor):
                    state["step"] = state["step"].to(device)
        self._move_rates()
        self._seen = self._numbers()

    def have_changed(self) -> bool:
        self._move_rates()
        seen, self._seen = self._seen, self._numbers()
        self.changes += seen != self._seen
        return seen != self._seen

    def _move_rates(self) -> None:
        """Learning rates that are read from the device are put there, also those that a caller has set since."""
        for i, group in enumerate(self._groups):
            if self._device.type != "cuda" or not (group.get("capturable") or group.get("fused")):
                continue
            if i not in self._rates:
                self._rates[i] = torch.as_tensor(group["lr"], dtype=torch.float32, device=self._device).clone()
            if group["lr"] is not self._rates[i]:
                self._rates[i].fill_(group["lr"])
                group["lr"] = self._rates[i]

    def _numbers(self) -> list:
        return [{name: value for name, value in group.items()
                 if name != "params" and not isinstance(value, torch.Tensor)} for group in self._groups]


def _tensors(given: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]


def _only_device(model: nn.Module) -> torch.device:
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        raise RepriseError(f"reprise.Step wants a model on one device, not on {len(devices)}")
    return devices.pop()
