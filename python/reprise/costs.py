# SPDX-License-Identifier: Apache-2.0
"""What each operation takes: time, workspace and the sizes of its results, measured on the device or estimated."""

from __future__ import annotations

import hashlib
import logging
import platform
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch.utils.flop_counter import flop_registry

from . import _torch, memory
from .cache import cache
from .capture.lower import Lowered
from .capture.program import Call, Constant
from .capture.recorder import ASSERTION, Geometry
from .kernels import has_kernel, kernel_settings
from .timing import GraphTimer, seconds
from .words import first_line

log = logging.getLogger("reprise")

_FLOPS_A_BYTE = 10  # about what a device does while it moves one byte
_FLOPS_A_NANOSECOND = 100  # of a device that could not measure
_RANDOM_STATE = 5056  # bytes of the CPU generator's, which a random operation may have to save or set
_GRANULE = 512  # CUDA's allocator hands out multiples of it
_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
_LARGE, _LITTLE = 32 << 20, 16 << 20  # workspace from which convolutions are tried in parts, and down to which in more
_CLEARLY_LESS = 0.97  # of an operation's time: another way is taken for it
_CONVOLUTION_PARTS = (2, 4, 8, 16, 32)  # of a batch, for convolutions
_NORMS = ("aten::native_batch_norm", "aten::cudnn_batch_norm")
_NORM_BACKWARDS = ("aten::native_batch_norm_backward", "aten::cudnn_batch_norm_backward")
_STATISTICS_PARTS, _NORM_PARTS = (2, 4, 16, 64), (4, 16, 64)  # of a batch, for batch norms' statistics and backwards
_LARGE_NORM = 2 << 20  # bytes of images: of smaller ones, launches take most of the time
_MANY = 1 << 16  # numbers of 4 bytes or more: two ways to compute them that differ show it

_ran: set[str] = set()  # keys of what ran in this process


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
    by_parts: dict[int, "Measured"] = field(default_factory=dict)  # by their number: in so many, with less workspace
    fixed_parts: int = 1  # in which it always runs, as that takes less time
    renewal: "Measured | None" = None
    is_renewal_as_good: bool = False  # makes the same bits, and reads little
    statistics: "Measured | None" = None  # what it takes on parts at once, all but its first result
    more_at_once: int | None = None  # workspace, with both halves at once, where that takes less time


@dataclass
class InParts:
    """What an op takes where a call of its runs on one part of the batch after the other."""

    cost: int
    workspace: int
    call: int


@dataclass
class Ways:
    """How a step can run other than as eager does."""

    by_parts: dict[int, dict[int, InParts]] = field(default_factory=dict)  # by op and count: the more, the less space
    fixed_parts: dict[int, int] = field(default_factory=dict)  # by call, of batch norms that always run in parts
    renewed: list[int] = field(default_factory=list)  # calls that take less by their renewals
    at_once: dict[int, tuple[int, int]] = field(default_factory=dict)  # by op: a call for halves, and bytes more then
    kept: int = 0  # bytes that renewals read, which stay from first runs on


def rounded(size: int, device: torch.device) -> int:
    """What the allocator takes for `size` bytes."""
    return size if device.type == "cpu" else -(-size // _GRANULE) * _GRANULE


def add_costs(lowered: Lowered, program, *, how: str, in_graphs: bool, most_bytes: int | None,
              may_run_in_parts: bool) -> Ways:
    """Sets costs, workspace and sizes of `lowered.graph`. No measurement's tensors take more than `most_bytes`; its
    workspace, which is not known before, comes on top. `in_graphs`: times are those of kernels in CUDA graphs, whose
    launches take next to nothing. An op's cost is what it takes to run it again; what first runs take beyond that has
    to be paid once, and is the cost of what is outside."""
    graph = lowered.graph
    device = lowered.trace.device
    for value in graph["values"]:
        value["bytes"] = rounded(value["bytes"], device)
    graph["cost_unit"] = "ns" if how == "profile" else "flops"
    ways, first_runs = Ways(), 0
    timer = GraphTimer(device, most_bytes) if in_graphs and how == "profile" else None
    if timer is not None and most_bytes is not None:
        most_bytes -= timer.bytes
    bench = _Bench(lowered, program, timer, most_bytes, may_run_in_parts)
    on_cuda = device.type == "cuda"
    with torch.cuda.device(device) if on_cuda else nullcontext(), torch.random.fork_rng([device] if on_cuda else []):
        for index, (op, operation) in enumerate(zip(graph["ops"], lowered.program.operations)):
            found = [_of_call(bench, number, how) for number in operation.calls]
            first, again = _runs(bench, operation.calls, found)
            op["cost"] = _cost(again)
            op["workspace"] = max((measured.workspace for measured in first + again), default=0)
            first_runs += _cost(first) - op["cost"]
            if again is not found:
                ways.renewed.append(operation.calls[0])
            for number, measured in zip(operation.calls, first):
                if measured.more_at_once is not None:
                    ways.at_once[index] = (number, measured.more_at_once)
                if measured.fixed_parts > 1:
                    ways.fixed_parts[number] = measured.fixed_parts
                if measured.by_parts:
                    others = max((other.workspace for other in found if other is not measured), default=0)
                    ways.by_parts[index] = {
                        count: InParts(op["cost"] - measured.cost + part.cost, max(part.workspace, others), number)
                        for count, part in measured.by_parts.items()}
    graph["ops"][lowered.outside]["cost"] += first_runs
    for slot, result in bench.real.items():
        value = lowered.program.value_of_slot[slot]
        if value >= 0:
            graph["values"][value]["bytes"] = rounded(result.bytes, device)
    _keep_overwriting_equal(graph)
    ways.kept = sum(_kept_bytes(lowered, number) for number in ways.renewed)
    cache().save()
    return ways


class _Bench:
    """Where calls run on made-up tensors, which look as captured, or as a kernel was seen to return them."""

    def __init__(self, lowered: Lowered, program, timer: GraphTimer | None, most_bytes: int | None,
                 may_run_in_parts: bool):
        self.lowered, self._program = lowered, program
        self.timer = timer  # where there is one, operations are timed in CUDA graphs
        self._most_bytes = most_bytes  # for what is made up
        self.may_run_in_parts = may_run_in_parts  # where the last bits of results may be others
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

    def fits(self, call: Call, results: int = 1) -> bool:
        """With so many copies of its results."""
        made = {slot for slot in call.made() if slot >= 0}
        needed = sum(map(self.bytes, made | {*call.read()})) + (results - 1) * sum(map(self.bytes, made))
        return self._most_bytes is None or needed <= self._most_bytes

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


def _cost(run: list[Measured]) -> int:
    return sum(measured.cost for measured in run)


def _runs(bench: _Bench, calls: list[int], found: list[Measured]) -> tuple[list[Measured], list[Measured]]:
    """What an op runs first, and what again: its calls, and again maybe a renewal, which makes up for the first of them and
    for its tail; or first statistics on parts at once and the renewal, where that takes clearly less time, or no more,
    and the renewal could not be used otherwise."""
    renewal = found[0].renewal if found else None
    if renewal is None:
        return found, found
    renewed = [renewal, *found[1 + len(bench.calls[calls[0]].tail):]]
    is_better = found[0].is_renewal_as_good and _cost(renewed) < _cost(found)
    if found[0].statistics is not None:
        in_parts = [found[0].statistics, *renewed]
        if _cost(in_parts) <= (_CLEARLY_LESS if is_better else 1) * _cost(found):
            return in_parts, renewed
    return found, renewed if is_better else found


def _kept_bytes(lowered: Lowered, number: int) -> int:
    """Of a call's results but the first, which its renewal reads."""
    program = lowered.program
    values = {program.value_of_slot[slot] for slot in program.calls[number].made()[1:] if slot >= 0}
    return sum(lowered.graph["values"][value]["bytes"] for value in values if value >= 0)


def _keep_overwriting_equal(graph: dict) -> None:
    values = {value["name"]: value for value in graph["values"]}
    for op in graph["ops"]:
        for output, replaced in op.get("overwrites", {}).items():
            values[output]["bytes"] = values[replaced]["bytes"]


def _of_call(bench: _Bench, number: int, how: str) -> Measured:
    call = bench.calls[number]
    if how == "flops":
        return Measured(_flops(bench, call))
    if call.op == ASSERTION:  # it would not hold for what is made up
        return Measured(1)
    kept = _looked_up(bench, number)
    if kept is None:
        return Measured(_flops(bench, call) // _FLOPS_A_NANOSECOND)
    for slot, result in zip(call.made(), kept["results"]):
        if slot >= 0 and result is not None:
            bench.real[slot] = Result(tuple(result[0]), tuple(result[1]), result[2], getattr(torch, result[3]),
                                      torch.device(result[4]))
    saved = _RANDOM_STATE if call.random and call.device.type == "cpu" else 0
    parts = {count: Measured(cost, workspace) for count, cost, workspace in kept.get("parts", [])}
    renewed, statistics = kept.get("renewed") or None, kept.get("statistics")
    return Measured(kept["cost"], max(kept["workspace"], saved), parts, kept.get("fixed_parts", 1),
                    renewed and Measured(renewed["cost"], renewed["workspace"]), bool(renewed and renewed["as_good"]),
                    statistics and Measured(statistics["cost"], statistics["workspace"],
                                            fixed_parts=statistics["fixed_parts"]),
                    kept.get("more_at_once"))


def _looked_up(bench: _Bench, number: int) -> dict | None:
    """In the cache, or profiled for it. None: can't be told."""
    call = bench.calls[number]
    key = _key(bench, call)
    kept = cache().get(key)
    if not isinstance(kept, dict) or not {"cost", "workspace", "results", "parts"} <= kept.keys():
        kept = _profile(bench, number)
        if kept is None:
            return None
        cache().put(key, kept)
    elif key not in _ran and bench.timer is not None:
        _set_up(bench, number, kept)
    _ran.add(key)
    if call.renewal >= 0 and "renewed" not in kept:
        renewed = _measure_renewal(bench, number)
        if renewed is not None:
            kept = kept | {"renewed": renewed}
            cache().put(key, kept)
    return kept


def _key(bench: _Bench, call: Call) -> str:
    """The operation, its constants and how its tensors look, on this device with this torch."""
    order: dict[int, int] = {}
    words = [call.op, call.overload]
    for argument in call.arguments:
        if isinstance(argument, Constant):
            words.append(repr(argument.value))
        else:
            for slot in argument if isinstance(argument, list) else [argument]:
                words.append("none" if slot < 0 else f"{order.setdefault(slot, len(order))} {bench.words(slot)}")
    words.append(str([slot >= 0 for slot in call.made()]))
    if call.renewal >= 0:
        words.append(f"renewed with {[bench.calls[other].op for other in call.tail]}")
    if bench.timer is not None:
        words.append("in a CUDA graph")
    if not bench.may_run_in_parts and call.op in _CONVOLUTIONS + _NORMS + _NORM_BACKWARDS:
        words.append("never in parts")
    return "cost 15 " + _machine(call.device) + " " + hashlib.sha256("|".join(words).encode()).hexdigest()


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        versions = f"{torch.__version__} {torch.version.cuda} {torch.backends.cudnn.version()}"
        return f"{versions} {properties.name} {kernel_settings()}"
    return f"{torch.__version__} {platform.processor() or platform.machine()} {torch.get_num_threads()} threads"


def _profile(bench: _Bench, number: int) -> dict | None:
    """Runs the call on made-up tensors, and in parts, where that may be wanted. None: can't be told."""
    call = bench.calls[number]
    if not bench.fits(call):
        return None
    tensors = bench.arguments(call)
    try:
        bench.run(number, tensors)
        measured = _memory_and_time(bench, number, tensors)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:  # made-up tensors will not do: the step itself has to show whether it runs
        log.warning("%s could not be measured alone (%s): its cost is estimated", call.where,
                    first_line(error))
        return None
    try:
        parts = _convolution_parts(bench, number, tensors, measured)
        more = _more_at_once(bench, number, tensors, measured)
        fastest = _norm_parts(bench, number, tensors, measured)
    except torch.OutOfMemoryError:
        return measured  # incomplete: it is measured again another time
    in_parts = {"statistics": fastest} if call.renewal >= 0 else fastest or {}
    return measured | in_parts | {"parts": parts, "more_at_once": more}


def _memory_and_time(bench: _Bench, number: int, tensors: list, **way) -> dict:
    """A call that has run before, in this way: once for memory, then for time."""
    call = bench.calls[number]
    device = call.device
    if bench.timer is not None:
        torch._C._cuda_clearCublasWorkspaces()  # in a graph a call has its own
    with memory.measure(device) as measured:
        once, results = bench.run(number, tensors, **way)
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results.values()
                    if t is not None and not _is_among(t, tensors)}
        peak = measured.extra
    shown = [results.get(slot) for slot in call.made()]
    returned = [None if t is None else _described(t) for t in shown]
    workspace = max(0, peak - sum(rounded(size, device) for size in storages.values()))
    del results, shown

    def run(times: int) -> float:
        return bench.run(number, tensors, times, **way)[0]

    on_device = all(tensor.device == device for _, tensor in tensors)  # in a graph, attention wants its seeds there
    taken = seconds(run, once, device, bench.timer if on_device else None)
    return {"cost": max(1, round(taken * 1e9)), "workspace": workspace, "results": returned}


def _convolution_parts(bench: _Bench, number: int, tensors: list, whole: dict) -> list[list[int]]:
    """How many parts, their cost and workspace, for convolutions that take much: as long as more parts take less."""
    call, workspace, found = bench.calls[number], whole["workspace"], []
    if not bench.may_run_in_parts or call.op not in _CONVOLUTIONS or call.device.type != "cuda" or workspace < _LARGE:
        return []
    images = bench.of(call.read()[0]).size[0]
    for count in _CONVOLUTION_PARTS:
        if workspace <= _LITTLE or images < 2 * count:
            break
        measured = _measured_otherwise(bench, number, tensors, whole, parts=count)
        if measured is None or measured["workspace"] >= workspace:
            break
        workspace = measured["workspace"]
        found.append([count, measured["cost"], workspace])
    return found


def _norm_parts(bench: _Bench, number: int, tensors: list, whole: dict) -> dict | None:
    """On how many parts at once the statistics of a batch norm, or its backward, take the least, with cost and
    workspace. None: on the whole batch."""
    call, best = bench.calls[number], None
    is_one = call.op in _NORM_BACKWARDS or call.op in _NORMS and call.renewal >= 0
    if not bench.may_run_in_parts or not is_one or not has_kernel("aten::batch_norm_stats", call.device):
        return None
    if bench.bytes(call.read()[0]) < _LARGE_NORM:
        return None
    for count in _NORM_PARTS if call.op in _NORM_BACKWARDS else _STATISTICS_PARTS:
        measured = _measured_otherwise(bench, number, tensors, whole, parts=count)
        if measured is None or measured["cost"] > _CLEARLY_LESS * (best or whole)["cost"]:
            break
        best = {"cost": measured["cost"], "workspace": measured["workspace"], "fixed_parts": count}
    return best


def _more_at_once(bench: _Bench, number: int, tensors: list, whole: dict) -> int | None:
    """How much more workspace a convolution's backward takes with both of its halves at once, if that takes clearly
    less time. None: it does not."""
    call = bench.calls[number]
    if call.op != "aten::convolution_backward" or call.device.type != "cuda" or -1 in call.made()[:2]:
        return None
    measured = _measured_otherwise(bench, number, tensors, whole, at_once=True)
    if measured is None or measured["cost"] > _CLEARLY_LESS * whole["cost"]:
        return None
    return max(0, measured["workspace"] - whole["workspace"])


def _measured_otherwise(bench: _Bench, number: int, tensors: list, whole: dict, **way) -> dict | None:
    """In parts, or halves at once. None: it can't be, or its results lie otherwise."""
    try:
        bench.run(number, tensors, **way)
        measured = _memory_and_time(bench, number, tensors, **way)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        log.info("%s does not run with %s: %s", bench.calls[number].where, way, first_line(error))
        return None
    made_alike = all(one == other for one, other in zip(measured["results"], whole["results"]) if one is not None)
    return measured if made_alike else None


def _measure_renewal(bench: _Bench, number: int) -> dict | None:
    """What its renewal takes, and whether that is as good: makes the same bits of numbers that are drawn for it, and reads
    little that would not be there. Empty: it can't be. None: can't be told now."""
    if not bench.fits(bench.calls[bench.calls[number].renewal], results=3):  # both ways', and where they are the same
        return None
    tensors = _given_to_renew(bench, number)
    for slot, tensor in tensors:
        if tensor.is_floating_point():
            bench.whole(slot, tensor).normal_(8, 3)  # far from zero: means that are a little off show as well
    try:
        first, again, given = _renew(bench, number, tensors)
        kept = sum(tensor.untyped_storage().nbytes() for tensor in first[1:])
        is_little = 100 * kept <= first[0].untyped_storage().nbytes()
        is_sure = first[0].numel() >= _MANY and first[0].dtype.itemsize >= 4
        is_as_good = is_little and is_sure and _same(first[0], again)
        del first, again
        renewed = _memory_and_time(bench, bench.calls[number].renewal, given)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        log.info("%s could not be renewed: %s", bench.calls[number].where, first_line(error))
        return {}
    return {"cost": renewed["cost"], "workspace": renewed["workspace"], "as_good": is_as_good}


def _given_to_renew(bench: _Bench, number: int) -> list[tuple[int, torch.Tensor]]:
    """Made up, by slot: what a call, its tail and its renewal are given by others."""
    call = bench.calls[number]
    slots = dict.fromkeys(call.read() + bench.calls[call.renewal].read())
    return [(slot, bench.made_up(slot)) for slot in slots if slot not in call.made()]


def _renew(bench: _Bench, number: int, tensors: list) -> tuple[list[torch.Tensor], torch.Tensor, list]:
    """Runs a call with its tail, and then its renewal: the results of the former, that of the latter, and what that was
    given."""
    call = bench.calls[number]
    other = bench.calls[call.renewal]
    results = bench.run(number, tensors)[1]
    there = dict(tensors) | results
    for following in call.tail:
        bench.run(following, [(slot, there[slot]) for slot in dict.fromkeys(bench.calls[following].read())])
    given = [(slot, there[slot]) for slot in dict.fromkeys(other.read())]
    again = bench.run(call.renewal, given)[1]
    return [results[slot] for slot in call.made() if slot >= 0], again[other.made()[0]], given


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """In all bits, and in how they lie."""
    words = {4: torch.int32, 8: torch.int64}[a.dtype.itemsize]
    return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a.view(words), b.view(words))


def _set_up(bench: _Bench, number: int, kept: dict) -> None:
    """Runs what was measured in another process: what libraries set up then can't be in a recording."""
    call = bench.calls[number]
    renews = bool(kept.get("renewed"))
    if not bench.fits(call, results=2 if renews else 1):
        return
    try:
        if renews:
            _renew(bench, number, _given_to_renew(bench, number))
        tensors = bench.arguments(call)
        fixed_parts = (kept.get("statistics") or kept).get("fixed_parts", 1)
        for count in (1, fixed_parts, *(count for count, _, _ in kept.get("parts", []))):
            bench.run(number, tensors, parts=count)
        if kept.get("more_at_once") is not None:
            bench.run(number, tensors, at_once=True)
    except RuntimeError as error:
        log.info("%s could not be run alone: %s", call.where, first_line(error))


def _described(tensor: torch.Tensor) -> list:
    """What Result is made from, as JSON."""
    return [list(tensor.shape), list(tensor.stride()), tensor.untyped_storage().nbytes(),
            str(tensor.dtype).removeprefix("torch."), str(tensor.device)]


def _is_among(tensor: torch.Tensor, tensors: list) -> bool:
    pointer = tensor.untyped_storage().data_ptr()
    return any(given.untyped_storage().data_ptr() == pointer for _, given in tensors)


def _flops(bench: _Bench, call: Call) -> int:
    """Multiplications and additions where PyTorch can count them, and the bytes that are moved."""
    results = [slot for slot in call.made() if slot >= 0]
    moved = sum(bench.bytes(slot) for slot in set(call.read() + results))
    namespace, name = call.op.split("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    count = flop_registry.get(packet)
    if count is None:
        return max(1, _FLOPS_A_BYTE * moved)

    def shown(slot: int) -> torch.Tensor:
        return torch.empty(bench.of(slot).size, device="meta")

    outputs = [shown(slot) if slot >= 0 else None for slot in call.made()]
    try:
        flops = count(*call.filled(shown), out_val=outputs[0] if len(outputs) == 1 else tuple(outputs))
    except Exception:  # a formula that does not know this form: what is moved has to do
        flops = 0
    return max(1, int(flops) + _FLOPS_A_BYTE * moved)
