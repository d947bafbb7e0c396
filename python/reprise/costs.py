# SPDX-License-Identifier: Apache-2.0
"""What each operation takes: time, workspace and the sizes of its results, measured on the device or estimated."""

from __future__ import annotations

import hashlib
import logging
import math
import platform
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import flop_registry

from . import _torch, memory
from .cache import cache
from .capture.lower import Lowered

log = logging.getLogger("reprise")

_FLOPS_A_BYTE = 10  # about what a device does while it moves one byte
_FLOPS_A_NANOSECOND = 100  # of a device that could not measure
_RANDOM_STATE = 5056  # bytes of the CPU generator's, which a random operation may have to save or set
_GRANULE = 512  # CUDA's allocator hands out multiples of it


@dataclass
class Result:
    """What a kernel really returned: fake ones have been seen to err."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    bytes: int  # of its storage
    dtype: torch.dtype
    device: torch.device


@dataclass
class Measured:
    cost: int  # ns, or flops
    workspace: int = 0  # bytes needed while it runs, beyond arguments and results


def rounded(size: int, device: torch.device) -> int:
    """What the allocator takes for `size` bytes."""
    return size if device.type == "cpu" else -(-size // _GRANULE) * _GRANULE


def add_costs(lowered: Lowered, program, *, how: str = "profile", most_bytes: int | None = None) -> None:
    """Sets costs, workspace and sizes of `lowered.graph`. No measurement takes more than `most_bytes`."""
    graph = lowered.graph
    device = lowered.trace.device
    for value in graph["values"]:
        value["bytes"] = rounded(value["bytes"], device)
    graph["cost_unit"] = "ns" if how == "profile" else "flops"
    looks = _Looks(lowered)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for op, calls in zip(graph["ops"], lowered.op_calls):
            found = [_of_call(looks, program, call, how, most_bytes) for call in calls]
            op["cost"] = sum(measured.cost for measured in found)
            op["workspace"] = max((measured.workspace for measured in found), default=0)
    for slot, result in looks.real.items():
        value = lowered.slots[slot][1]
        if value >= 0:
            graph["values"][value]["bytes"] = rounded(result.bytes, device)
    _keep_overwriting_equal(graph, {value["name"]: value for value in graph["values"]})
    cache().save()


class _Looks:
    """How the tensors in slots look: as captured, or as a kernel was seen to return them."""

    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        self.real: dict[int, Result] = {}

    def call(self, call: int) -> dict:
        return self.lowered.program["calls"][call]

    def dtype(self, slot: int) -> torch.dtype:
        return self._of(slot).dtype

    def device(self, slot: int) -> torch.device:
        if slot in self.real:
            return self.real[slot].device
        return self.lowered.trace.storages[self.lowered.trace.tensors[self.lowered.slots[slot][0]].storage].device

    def size(self, slot: int) -> tuple[int, ...]:
        return self._of(slot).size

    def stride(self, slot: int) -> tuple[int, ...]:
        return self._of(slot).stride

    def _of(self, slot: int):
        return self.real.get(slot) or self.lowered.trace.tensors[self.lowered.slots[slot][0]]

    def extent(self, slot: int) -> int:
        """Elements from its first to its last."""
        if 0 in self.size(slot):
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.size(slot), self.stride(slot)))

    def bytes(self, slot: int) -> int:
        return self.extent(slot) * self.dtype(slot).itemsize

    def words(self, slot: int) -> str:
        return f"{self.dtype(slot)} {tuple(self.size(slot))} {tuple(self.stride(slot))}"

    def results(self, call: int) -> list[int]:
        flat: list[int] = []
        for result in self.call(call)["results"]:
            flat.extend(result if isinstance(result, list) else [result])
        return flat

    def arguments(self, call: int) -> list[int]:
        flat: list[int] = []
        for kind, value in self.call(call)["arguments"]:
            if kind == "t":
                flat.append(value)
            elif kind == "ts":
                flat.extend(slot for slot in value if slot >= 0)
        return flat

    def made_up(self, slot: int) -> torch.Tensor:
        dtype = self.dtype(slot)
        tensor = torch.empty_strided(self.size(slot), self.stride(slot), dtype=dtype, device=self.device(slot))
        if tensor.numel():
            filler = 0.5 if dtype.is_floating_point or dtype.is_complex else 0
            torch.as_strided(tensor, (self.extent(slot),), (1,)).fill_(filler)
        return tensor


def _keep_overwriting_equal(graph: dict, values: dict) -> None:
    for op in graph["ops"]:
        for output, replaced in op.get("overwrites", {}).items():
            values[output]["bytes"] = values[replaced]["bytes"]


def _of_call(looks: _Looks, program, call: int, how: str, most_bytes: int | None) -> Measured:
    if how == "flops":
        return Measured(_flops(looks, call))
    key = _key(looks, call)
    kept = cache().get(key)
    if not isinstance(kept, dict) or not {"cost", "workspace", "results"} <= kept.keys():
        kept = _measure(looks, program, call, most_bytes)
        if kept is None:
            return Measured(_flops(looks, call) // _FLOPS_A_NANOSECOND)
        cache().put(key, kept)
    for slot, result in zip(looks.results(call), kept["results"]):
        if slot >= 0 and result is not None:
            looks.real[slot] = Result(tuple(result[0]), tuple(result[1]), result[2], getattr(torch, result[3]),
                                      torch.device(result[4]))
    entry = looks.call(call)
    saved = _RANDOM_STATE if entry["random"] and entry["device"].type == "cpu" else 0
    return Measured(kept["cost"], max(kept["workspace"], saved))


def _key(looks: _Looks, call: int) -> str:
    """The operation, its constants and how its tensors look, on this device with this torch."""
    entry = looks.call(call)
    order: dict[int, int] = {}
    words = [entry["op"], entry["overload"]]
    for kind, value in entry["arguments"]:
        if kind == "c":
            words.append(repr(value))
        else:
            for slot in [value] if kind == "t" else value:
                words.append("none" if slot < 0 else f"{order.setdefault(slot, len(order))} {looks.words(slot)}")
    words.append(str([slot >= 0 for slot in looks.results(call)]))
    return "cost 3 " + _machine(entry["device"]) + " " + hashlib.sha256("|".join(words).encode()).hexdigest()


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        settings = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32,
                    torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled())
        return f"{torch.__version__} {torch.version.cuda} {torch.backends.cudnn.version()} {properties.name} {settings}"
    return f"{torch.__version__} {platform.processor() or platform.machine()} {torch.get_num_threads()} threads"


def _measure(looks: _Looks, program, call: int, most_bytes: int | None) -> dict | None:
    """Runs the call on made-up tensors: once to warm up, once for memory, then for time."""
    slots = list(dict.fromkeys(looks.arguments(call)))
    device = looks.call(call)["device"]
    needed = sum(looks.bytes(slot) for slot in slots + [s for s in looks.results(call) if s >= 0])
    if most_bytes is not None and needed > most_bytes:
        return None
    tensors = [(slot, looks.made_up(slot)) for slot in slots]
    try:
        _torch.run_alone(program, call, tensors, 1)
        with memory.measure(device) as measured:
            seconds, results = _torch.run_alone(program, call, tensors, 1)
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results.values()
                        if t is not None and not _is_among(t, tensors)}
            peak = measured.extra
        shown = [results.get(slot) for slot in looks.results(call)]
        returned = [None if t is None else _described(t) for t in shown]
        workspace = max(0, peak - sum(rounded(size, device) for size in storages.values()))
        del results, shown
        seconds = _seconds(program, call, tensors, seconds, device)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:  # made-up tensors will not do: the step itself has to show whether it runs
        log.warning("%s could not be measured alone (%s): its cost is estimated", looks.call(call)["where"],
                    str(error).splitlines()[0])
        return None
    return {"cost": max(1, round(seconds * 1e9)), "workspace": workspace, "results": returned}


def _described(tensor: torch.Tensor) -> list:
    """What Result is made from, as JSON."""
    return [list(tensor.shape), list(tensor.stride()), tensor.untyped_storage().nbytes(),
            str(tensor.dtype).removeprefix("torch."), str(tensor.device)]


def _is_among(tensor: torch.Tensor, tensors: list) -> bool:
    pointer = tensor.untyped_storage().data_ptr()
    return any(given.untyped_storage().data_ptr() == pointer for _, given in tensors)


def _seconds(program, call: int, tensors: list, once: float, device: torch.device) -> float:
    if device.type != "cuda":
        if once > 0.02:
            return once
        return _torch.run_alone(program, call, tensors, max(1, min(30, math.ceil(0.003 / max(once, 1e-6)))))[0]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = 10
    torch.cuda.synchronize(device)
    begin.record()
    _torch.run_alone(program, call, tensors, times)
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1e3 / times


def _flops(looks: _Looks, call: int) -> int:
    """Multiplications and additions where PyTorch can count them, and the bytes that are moved."""
    entry = looks.call(call)
    results = [slot for slot in looks.results(call) if slot >= 0]
    moved = sum(looks.bytes(slot) for slot in set(looks.arguments(call) + results))
    namespace, name = entry["op"].split("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    count = flop_registry.get(packet)
    if count is None:
        return max(1, _FLOPS_A_BYTE * moved)

    def shown(slot: int) -> torch.Tensor:
        return torch.empty(looks.size(slot), device="meta")

    arguments = [shown(value) if kind == "t" else [shown(s) for s in value] if kind == "ts" else value
                 for kind, value in entry["arguments"]]
    outputs = [shown(slot) if slot >= 0 else None for slot in looks.results(call)]
    try:
        flops = count(*arguments, out_val=outputs[0] if len(outputs) == 1 else tuple(outputs))
    except Exception:  # a formula that does not know this form: what is moved has to do
        flops = 0
    return max(1, int(flops) + _FLOPS_A_BYTE * moved)
