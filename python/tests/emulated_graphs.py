# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs as far as a CPU has them: operations are noted with the tensors and numbers that they were given, none
of them seems to have run, and a replay runs them again on the same memory."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Callable

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reprise import step as step_module
from reprise.dynamo import split_target


def _tensors(given) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]


class _Tape(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls: list[tuple] = []
        self._made: set[int] = set()  # storages
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by storage: what was there, and a copy of it

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for tensor in self._written(function, args, kwargs):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._made:
                self._before.setdefault(storage._cdata, (tensor, storage.clone()))
        out = function(*args, **kwargs)
        given = {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs))}
        fresh = [tensor for tensor in _tensors(out) if tensor.untyped_storage()._cdata not in given]
        self._made.update(tensor.untyped_storage()._cdata for tensor in fresh)
        self.calls.append((function, args, kwargs, out, fresh))
        return out

    @staticmethod
    def _written(function, args, kwargs) -> list[torch.Tensor]:
        named = dict(zip((argument.name for argument in function._schema.arguments), args)) | kwargs
        written = [named.get(argument.name) for argument in function._schema.arguments
                   if argument.alias_info is not None and argument.alias_info.is_write]
        if function is torch.ops.aten.native_batch_norm.default:  # its schema does not say so
            written += [named["running_mean"], named["running_var"]]
        return _tensors(written)

    def undo(self) -> None:
        for tensor, copy in self._before.values():
            tensor.untyped_storage().copy_(copy)

    def replay(self) -> None:
        for function, args, kwargs, out, fresh in self.calls:
            again = function(*args, **kwargs)
            for tensor, value in zip(_tensors(out), _tensors(again)):
                if any(tensor is other for other in fresh):
                    tensor.copy_(value)


class Graph:
    """In place of _torch.CudaGraph."""

    def __init__(self, memory, turns: int):
        self._tape = _Tape()

    def record(self, work: Callable[[], None]) -> None:
        state = torch.get_rng_state()
        try:
            with self._tape:
                work()
        finally:
            self._tape.undo()
            torch.set_rng_state(state)

    def replay(self) -> None:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):  # what it does is part of what was noted
            self._tape.replay()


class EmulatedFacts:
    """In place of Facts."""

    def __init__(self, is_settled: bool = True):
        self.is_settled, self.plan, self.budget = is_settled, None, None
        self.step = SimpleNamespace(off_device=None, schedule=lambda plan: None)


class _Handed(TorchFunctionMode):
    """Notes what operations read that was there before, as inputs of a captured graph are."""

    def __init__(self):
        super().__init__()
        self.refs: list[weakref.ref] = []
        self._known: dict[int, torch.Tensor] = {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.refs += map(weakref.ref, self._new(args, kwargs))
        out = function(*args, **(kwargs or {}))
        self._new(out)
        return out

    def _new(self, *values) -> list[torch.Tensor]:
        found = [tensor for tensor in _tensors(values) if id(tensor) not in self._known]
        self._known |= {id(tensor): tensor for tensor in found}
        return found


class Plainly:
    """In place of a compiled module: Dynamo captures nothing while operations are noted."""

    def __init__(self, model: nn.Module, loss: Callable):
        self._model, self._loss = model, loss
        self._reprise_state = SimpleNamespace(facts=[EmulatedFacts()], handed=[])

    def __call__(self, *args, **kwargs):
        args, kwargs, target = split_target(args, kwargs)
        with _Handed() as handed:
            loss = self._loss(self._model(*args, **kwargs), target)
        self._reprise_state.handed = handed.refs
        return loss

    def __getattr__(self, name: str):
        return getattr(self._model, name)


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps on the CPU are recorded from here on."""
    memory = SimpleNamespace(enter=lambda: None, leave=lambda: None)
    monkeypatch.setattr(step_module, "_has_graphs", lambda device: True)
    monkeypatch.setattr(step_module._torch, "GraphMemory", lambda device: memory)
    monkeypatch.setattr(step_module._torch, "CudaGraph", Graph)
    monkeypatch.setattr(step_module._torch, "random_turns", lambda schedule: 0)
    monkeypatch.setattr(step_module, "compile", lambda model, budget, *, loss, **options: Plainly(model, loss))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.get_rng_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: torch.set_rng_state(state))


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """For files all of whose steps are recorded so."""
    emulate(monkeypatch)
