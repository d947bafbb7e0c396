# SPDX-License-Identifier: Apache-2.0
"""What one call takes: measured on the device, from the cache, or estimated."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from dataclasses import dataclass, field

import torch
from torch.utils.flop_counter import flop_registry

from .bench import Bench, Kept, Result
from .cache import cache
from .capture.program import Call, Constant
from .capture.tracer import ASSERTION
from .kernels import kernel_settings
from .other_ways import (CONVOLUTIONS, NORM_BACKWARDS, NORMS, convolution_parts, convolution_within, given_to_renew,
                         measure_renewal, more_at_once, norm_parts, renew)
from .words import first_line

log = logging.getLogger("reprise")

_FLOPS_A_BYTE = 10  # about what a device does while it moves one byte
_FLOPS_A_NANOSECOND = 100  # of a device that could not measure
_RANDOM_STATE = 5056  # bytes of the CPU generator's, which a random operation may have to save or set

_ran: set[str] = set()  # keys of what ran in this process


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
    # Bytes that both halves at once take less than one call, and `workspace` is without: then it always runs so.
    less_at_once: int = 0


def of_call(bench: Bench, number: int, how: str) -> Measured:
    """`how`: "profile" or "flops". Notes at the bench how results really are."""
    call = bench.calls[number]
    if how == "flops":
        return Measured(_flops(bench, call))
    if call.op == ASSERTION:  # it would not hold for what is made up
        return Measured(1)
    kept = _looked_up(bench, number)
    if kept is None:
        return Measured(_flops(bench, call) // _FLOPS_A_NANOSECOND)
    _note_results(bench, call, kept["results"])
    return _measured(kept, _RANDOM_STATE if call.random and call.device.type == "cpu" else 0)


def _note_results(bench: Bench, call: Call, results: list) -> None:
    for slot, result in zip(call.made(), results):
        if slot < 0 or result is None:
            continue
        bench.real[slot] = Result(tuple(result[0]), tuple(result[1]), result[2], getattr(torch, result[3]),
                                  torch.device(result[4]))
        captured = bench.lowered.geometry(slot)
        if any(n > 1 and real != fake for n, real, fake in zip(captured.size, result[1], captured.stride)):
            log.warning("%s returns strides %s, but was captured with %s: views of it may be others than eager's",
                        call.where, tuple(result[1]), captured.stride)


def _measured(kept: Kept, saved: int) -> Measured:
    """As the cache has it. `saved`: bytes of a random state."""
    more, renewed, statistics = kept.get("more_at_once"), kept.get("renewed"), kept.get("statistics")
    less = 0 if more is None else max(0, -more)
    workspace = max(kept["workspace"] - less, saved)
    return Measured(
        kept["cost"], workspace,
        by_parts={count: Measured(cost, size) for count, cost, size in kept.get("parts", [])
                  if size < workspace or not less},
        fixed_parts=kept.get("fixed_parts", 1),
        renewal=Measured(renewed["cost"], renewed["workspace"]) if renewed else None,
        is_renewal_as_good=bool(renewed and renewed["as_good"]),
        statistics=Measured(statistics["cost"], statistics["workspace"], fixed_parts=statistics["fixed_parts"])
        if statistics else None,
        more_at_once=None if more is None else max(0, more), less_at_once=less)


def _looked_up(bench: Bench, number: int) -> Kept | None:
    """In the cache, or profiled for it. None: can't be told."""
    call = bench.calls[number]
    key = _key(bench, call)
    kept = cache().get(key)
    is_known = isinstance(kept, dict) and {"cost", "workspace", "results", "parts"} <= kept.keys()
    if not is_known or "more_at_once" not in kept and _has_room_for_more(bench, call, kept):
        kept = _profile(bench, number)
        if kept is None:
            return None
        cache().put(key, kept)
    elif key not in _ran and bench.timer is not None and not _set_up(bench, number, kept):
        return kept | {"renewed": {}, "parts": [], "more_at_once": None}
    results = 2 if kept.get("renewed") else 1
    if bench.fits(call, results, workspace=kept["workspace"] + max(0, kept.get("more_at_once") or 0)):
        _ran.add(key)  # in all ways
    if call.renewal >= 0 and "renewed" not in kept:
        renewed = measure_renewal(bench, number)
        if renewed is not None:
            kept = kept | {"renewed": renewed}
            cache().put(key, kept)
    return kept


def _has_room_for_more(bench: Bench, call: Call, kept: Kept) -> bool:
    """Room for what was estimated only, or for both halves at once, which were left out."""
    return bench.fits(call, workspace=kept["workspace"] * (1 if kept.get("is_estimate") else 2))


def _key(bench: Bench, call: Call) -> str:
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
        known = call.read() + call.made()
        others = [bench.words(slot) for slot in bench.calls[call.renewal].read() if slot not in known]
        words.append(f"renewed with {[bench.calls[other].op for other in call.tail]} {others}")
    if bench.timer is not None:
        words.append("in a CUDA graph")
    if not bench.may_run_in_parts and call.op in CONVOLUTIONS + NORMS + NORM_BACKWARDS:
        words.append("never in parts")
    if not bench.may_run_at_once and call.op == CONVOLUTIONS[1]:
        words.append("never at once")
    return "cost 17 " + _machine(call.device) + " " + hashlib.sha256("|".join(words).encode()).hexdigest()


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        versions = f"{torch.__version__} {torch.version.cuda} {torch.backends.cudnn.version()}"
        cublas = f"{torch.backends.cuda.preferred_blas_library()} {os.environ.get('CUBLAS_WORKSPACE_CONFIG')}"
        return f"{versions} {properties.name} {kernel_settings()} {cublas}"
    return f"{torch.__version__} {platform.processor() or platform.machine()} {torch.get_num_threads()} threads"


def _profile(bench: Bench, number: int) -> Kept | None:
    """Runs the call on made-up tensors, and in parts, where that may be wanted. None: can't be told."""
    call = bench.calls[number]
    if not bench.fits(call):
        return None
    tensors = bench.arguments(call)
    try:
        if (within := convolution_within(bench, number, tensors)) is not None:
            return within
        bench.run(number, tensors)
        measured = bench.measured(number, tensors)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:  # made-up tensors will not do: the step itself has to show whether it runs
        log.warning("%s could not be measured alone (%s): its cost is estimated", call.where,
                    first_line(error))
        return None
    try:
        ways = {"parts": convolution_parts(bench, number, tensors, measured)}
        if _has_room_for_more(bench, call, measured):
            ways["more_at_once"] = more_at_once(bench, number, tensors, measured)
        fastest = norm_parts(bench, number, tensors, measured)
    except torch.OutOfMemoryError:
        return measured  # incomplete: it is measured again another time
    return measured | ({"statistics": fastest} if call.renewal >= 0 else fastest or {}) | ways


def _set_up(bench: Bench, number: int, kept: Kept) -> bool:
    """Runs what was measured in another process: what libraries set up then can't be in a recording. False: it does not
    run."""
    call = bench.calls[number]
    renews = bool(kept.get("renewed"))
    if not bench.fits(call, results=2 if renews else 1):
        return True
    try:
        if renews:
            renew(bench, number, given_to_renew(bench, number))
        tensors = bench.arguments(call)
        fixed_parts = (kept.get("statistics") or kept).get("fixed_parts", 1)
        ways = [(1, kept["workspace"]), *((count, size) for count, _, size in kept.get("parts", []))]
        for count, workspace in ways if fixed_parts == 1 else [*ways, (fixed_parts, 0)]:
            if bench.fits(call, workspace=workspace):
                bench.run(number, tensors, parts=count)
        more = kept.get("more_at_once")
        if more is not None and bench.fits(call, workspace=kept["workspace"] + more):
            bench.run(number, tensors, at_once=True)
    except torch.OutOfMemoryError:
        pass
    except RuntimeError as error:
        log.info("%s could not be run alone: %s", call.where, first_line(error))
        return False
    return True


def _flops(bench: Bench, call: Call) -> int:
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
