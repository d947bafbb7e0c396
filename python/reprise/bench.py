# SPDX-License-Identifier: Apache-2.0
"""Where calls of a captured step run by themselves, on made-up tensors, to be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import torch

from . import _torch, memory
from .capture.lower import Lowered
from .capture.program import Call
from .capture.tracer import Geometry
from .timing import GraphTimer, seconds

_GRANULE = 512  # CUDA's allocator hands out multiples of it


@dataclass
class Result:
    """What a kernel really returned: fake ones have been seen to err."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    bytes: int  # of its storage
    dtype: torch.dtype
    device: torch.device


class Kept(TypedDict, total=False):
    """What a call was measured to take, as the cache has it."""

    cost: int
    workspace: int
    results: list  # what Result is made from
    parts: list[list[int]]  # ways to run a convolution: how many parts, their cost and workspace
    is_estimate: bool  # for lack of room, but for `parts`
    more_at_once: int | None  # workspace, with both halves at once; None: that does not pay; absent: there was no room to try
    fixed_parts: int  # in which a batch norm always runs
    statistics: Kept | None  # of a batch norm that may be renewed, on parts at once; None: it runs whole
    renewed: Kept  # what its renewal takes; empty: it can't be renewed
    as_good: bool  # a renewal: it makes the same bits, and reads little


def rounded(size: int, device: torch.device) -> int:
    """What the allocator takes for `size` bytes."""
    return size if device.type == "cpu" else -(-size // _GRANULE) * _GRANULE


class Bench:
    """Where calls run on made-up tensors, which look as captured, or as a kernel was seen to return them."""

    def __init__(self, lowered: Lowered, program, timer: GraphTimer | None, most_bytes: int | None,
                 may_run_in_parts: bool, may_run_at_once: bool):
        self.lowered, self._program = lowered, program
        self.timer = timer  # where there is one, operations are timed in CUDA graphs
        self._most_bytes = most_bytes  # for what is made up
        self.may_run_in_parts = may_run_in_parts  # where the last bits of results may be others
        self.may_run_at_once = may_run_at_once  # both halves of convolutions' backwards
        self.real: dict[int, Result] = {}
        self.calls = lowered.program.calls

    def device(self, slot: int) -> torch.device:
        if slot in self.real:
            return self.real[slot].device
        return self.lowered.trace.storages[self.lowered.geometry(slot).storage].device

    def of(self, slot: int) -> Result | Geometry:
        return self.real.get(slot) or self.lowered.geometry(slot)

    def extent(self, slot: int) -> int:
        """Elements from its first to its last."""
        look = self.of(slot)
        return 0 if 0 in look.size else 1 + sum((n - 1) * stride for n, stride in zip(look.size, look.stride))

    def bytes(self, slot: int) -> int:
        return self.extent(slot) * self.of(slot).dtype.itemsize

    def words(self, slot: int) -> str:
        look = self.of(slot)
        return f"{look.dtype} {tuple(look.size)} {tuple(look.stride)}"

    def bytes_around(self, call: Call, results: int = 1) -> int:
        """Of its arguments and so many copies of its results."""
        made = {slot for slot in call.made() if slot >= 0}
        return sum(map(self.bytes, made | {*call.read()})) + (results - 1) * sum(map(self.bytes, made))

    def fits(self, call: Call, results: int = 1, workspace: int = 0) -> bool:
        return self._most_bytes is None or self.bytes_around(call, results) + workspace <= self._most_bytes

    def run(self, number: int, tensors: list, times: int = 1, *, parts: int = 1,
            at_once: bool = False) -> tuple[float, dict[int, torch.Tensor]]:
        """Seconds a run, and results by slot."""
        return _torch.run_alone(self._program, number, tensors, times, parts, at_once)

    def arguments(self, call: Call) -> list[tuple[int, torch.Tensor]]:
        """Made up, by slot."""
        return [(slot, self.made_up(slot)) for slot in dict.fromkeys(call.read())]

    def made_up(self, slot: int) -> torch.Tensor:
        look, dtype = self.of(slot), self.of(slot).dtype
        tensor = torch.empty_strided(look.size, look.stride, dtype=dtype, device=self.device(slot))
        self.whole(slot, tensor).fill_(0.5 if dtype.is_floating_point or dtype.is_complex else 0)
        return tensor

    def whole(self, slot: int, tensor: torch.Tensor) -> torch.Tensor:
        """Each element once, what lies between them too."""
        return torch.as_strided(tensor, (self.extent(slot),), (1,))

    def measured(self, number: int, tensors: list, **way) -> Kept:
        """A call that has run before, in this way: once for memory, then for time."""
        call = self.calls[number]
        device = call.device
        if self.timer is not None:
            torch._C._cuda_clearCublasWorkspaces()  # in a graph a call has its own
        with memory.measure(device) as used:
            once, results = self.run(number, tensors, **way)
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results.values()
                        if t is not None and not _is_among(t, tensors)}
            peak = used.extra
        shown = [results.get(slot) for slot in call.made()]
        returned = [None if t is None else _described(t) for t in shown]
        workspace = max(0, peak - sum(rounded(size, device) for size in storages.values()))
        del results, shown

        def run(times: int) -> float:
            return self.run(number, tensors, times, **way)[0]

        # A graph can't read arguments on the host, such as attention's seeds.
        on_device = all(tensor.device == device for _, tensor in tensors)
        taken = seconds(run, once, device, self.timer if on_device else None)
        return {"cost": max(1, round(taken * 1e9)), "workspace": workspace, "results": returned}


def _described(tensor: torch.Tensor) -> list:
    """What Result is made from, as JSON."""
    return [list(tensor.shape), list(tensor.stride()), tensor.untyped_storage().nbytes(),
            str(tensor.dtype).removeprefix("torch."), str(tensor.device)]


def _is_among(tensor: torch.Tensor, tensors: list) -> bool:
    pointer = tensor.untyped_storage().data_ptr()
    return any(given.untyped_storage().data_ptr() == pointer for _, given in tensors)
