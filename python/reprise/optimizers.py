# SPDX-License-Identifier: Apache-2.0
"""An optimizer in a step that is recorded."""

from __future__ import annotations

import contextlib
import inspect
import logging
from typing import Any, Iterable, Iterator

import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils._pytree import tree_leaves, tree_map

from .errors import RepriseError

log = logging.getLogger("reprise")

_PATIENCE = 3  # changes of its settings, after which it runs beside the graph
_ON_THE_HOST = (torch.optim.RMSprop, torch.optim.Adadelta)  # without foreach, they hand their rates over as numbers


class RecordedOptimizer:
    """An optimizer whose steps are part of a CUDA graph or, where they can't be, run beside it. Its learning rates are
    read from the device where that can be."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device | None):
        """`device`: where it is recorded; None: it is not."""
        self._optimizer, self._device = optimizer, device
        self.is_beside = not _can_be_recorded(optimizer)
        self._rates: dict[int, torch.Tensor] = {}  # on the device, by group
        self._settings: list[dict] = []  # that are part of a recording
        self._changes = 0  # of these
        self.adopt()

    def adopt(self) -> None:
        """Makes settings and state, which may be new, fit for a graph."""
        if self._device is not None and not self.is_beside:
            self._adopt_groups()
            for state in self._optimizer.state.values():  # counters, which may be on the host
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and not value.dim():
                        state[name] = value.to(self._device)
        self._changes, self._settings = 0, self._current_settings()

    def _adopt_groups(self) -> None:
        for group in self._optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True

    def has_changed(self) -> bool:
        """Since it was last asked: settings that are part of what was recorded, or hooks, which can't be."""
        if self.is_beside:
            return False
        self._adopt_groups()  # some may be new
        settings, before = self._current_settings(), self._settings
        self._settings = settings
        self._changes += settings != before
        if self._changes == _PATIENCE or not _can_be_recorded(self._optimizer):
            log.info("the optimizer has hooks, or its settings change again and again: it runs beside the graph")
            self.is_beside = True
        return self.is_beside or settings != before

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """On the device: its state, and settings that are tensors."""
        own = [list(self._optimizer.state.values()), *map(self._recorded_settings, self._optimizer.param_groups)]
        return [leaf for leaf in tree_leaves(own) if isinstance(leaf, torch.Tensor) and leaf.device == self._device]

    def move_rates(self) -> None:
        """To where a graph reads them."""
        for i, group in enumerate(self._optimizer.param_groups):
            if i in self._rates:
                rate = group["lr"]
                self._rates[i].fill_(rate.reshape(()) if isinstance(rate, torch.Tensor) else rate)

    @contextlib.contextmanager
    def rates_on_device(self) -> Iterator[None]:
        """Learning rates that the optimizer can read from the device are there, in a place of its own, while it
        runs."""
        groups = self._optimizer.param_groups
        moved = {i: group["lr"] for i, group in enumerate(groups)
                 if self._reads_rate(group) and self._device is not None}
        for i, rate in moved.items():
            dtype = rate.dtype if isinstance(rate, torch.Tensor) else torch.float32
            self._rates.setdefault(i, torch.zeros((), dtype=dtype, device=self._device))
        self.move_rates()
        for i in moved:
            groups[i]["lr"] = self._rates[i]
        try:
            yield
        finally:
            for i, rate in moved.items():
                groups[i]["lr"] = rate

    def _current_settings(self) -> list[dict]:
        """Tensors on the host by value, others by where they lie."""
        def known(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value.tolist() if value.device.type == "cpu" else value.data_ptr()

        return [tree_map(known, self._recorded_settings(group)) | {"params": list(map(id, group["params"]))}
                for group in self._optimizer.param_groups]

    def _recorded_settings(self, group: dict) -> dict:
        """All but a learning rate that is read from the device."""
        return {name: value for name, value in group.items()
                if name != "params" and not (name == "lr" and self._reads_rate(group))}

    def _reads_rate(self, group: dict) -> bool:
        """Does the optimizer read this group's learning rate from the device, if it is there?"""
        if isinstance(self._optimizer, _ON_THE_HOST) and group.get("foreach") is False:
            return False
        return bool(group.get("capturable") or group.get("fused"))


def check_optimizer(optimizer: Any, parameters: Iterable[nn.Parameter]) -> None:
    """Refuses one that can't train these."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"reprise.Step wants a torch.optim.Optimizer, not {type(optimizer).__name__}")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise RepriseError(f"{type(optimizer).__name__} computes the loss several times in an update, "
                           "and reprise.Step once: write a loop around reprise.compile")
    known = set(parameters)
    if not any(parameter in known for group in optimizer.param_groups for parameter in group["params"]):
        raise RepriseError("the optimizer has none of the model's parameters")


def _can_be_recorded(optimizer: torch.optim.Optimizer) -> bool:
    """Is all that it does known, and nothing of it on the host that changes from step to step?"""
    if (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks):
        return False
    own = vars(optimizer).get("step")  # learning rates' schedules put a wrapper there
    if own is not None and not (getattr(own, "_wrapped_by_lr_sched", False)
                                and getattr(own, "__wrapped__", None) is type(optimizer).step):
        return False
    if not type(optimizer).__module__.startswith("torch.optim."):
        return False
    return type(optimizer) is torch.optim.SGD or all(
        "capturable" in group or group.get("fused") for group in optimizer.param_groups)
