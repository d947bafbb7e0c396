# SPDX-License-Identifier: Apache-2.0
"""What calls take that run other than as eager runs them: in parts, both halves at once, renewed."""

from __future__ import annotations

import logging
import math

import torch

from .bench import Bench, Kept
from .capture.program import Call
from .kernels import has_kernel
from .words import first_line

log = logging.getLogger("reprise")

CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
_LARGE = 32 << 20  # workspace from which convolutions are tried in parts
_LITTLE = 16 << 20  # workspace down to which they are tried in more parts
CLEARLY_LESS = 0.97  # of an operation's time: another way is taken for it
_CONVOLUTION_PARTS = (2, 4, 8, 16, 32)  # of a batch, for convolutions
NORMS = ("aten::native_batch_norm", "aten::cudnn_batch_norm")
NORM_BACKWARDS = ("aten::native_batch_norm_backward", "aten::cudnn_batch_norm_backward")
_STATISTICS_PARTS, _NORM_PARTS = (2, 4, 16, 64), (4, 16, 64)  # of a batch, for batch norms' statistics and backwards
_LARGE_NORM = 2 << 20  # bytes of images: of smaller ones, launches take most of the time
_MANY = 1 << 16  # numbers of 4 bytes or more: two ways to compute them that differ show it


def convolution_parts(bench: Bench, number: int, tensors: list, whole: Kept) -> list[list[int]]:
    """How many parts, their cost and workspace, for convolutions that take much: as long as more parts take less."""
    call, workspace, found = bench.calls[number], whole["workspace"], []
    if workspace < _LARGE:
        return []
    for count in _counts(bench, call):
        if workspace <= _LITTLE:
            break
        measured = _measured_otherwise(bench, number, tensors, whole, parts=count)
        if measured is None or measured["workspace"] >= workspace:
            break
        workspace = measured["workspace"]
        found.append([count, measured["cost"], workspace])
    return found


def convolution_within(bench: Bench, number: int, tensors: list) -> Kept | None:
    """Of a convolution for whose workspace there may be no room: measured in many parts, then in ever fewer, for as long
    as the next way seems to fit; what it takes whole is estimated. None: that seems to fit, or it can't be in parts."""
    call, found = bench.calls[number], []
    most_usual = 2 * bench.bytes_around(call)  # twice what copies of its arguments and results take
    if bench.fits(call, workspace=most_usual):
        return None
    for count in reversed(_counts(bench, call)):
        if found and not bench.fits(call, workspace=_seeming_workspace(found, 2, most_usual)):
            break
        measured = _measured_otherwise(bench, number, tensors, found[-1] if found else None, parts=count)
        if measured is None:
            break
        found.append({"count": count} | measured)
    if not found:
        return None
    fewest, parts = found[-1], []
    workspace = _seeming_workspace(found, fewest["count"], most_usual)
    if bench.fits(call, workspace=workspace):
        return None
    for way in reversed(found):
        if not parts or way["workspace"] < parts[-1][2]:
            parts.append([way["count"], way["cost"], way["workspace"]])
    return {"cost": fewest["cost"], "workspace": workspace, "results": fewest["results"], "parts": parts,
            "is_estimate": True}


def _seeming_workspace(found: list[dict], images: int, most_usual: int) -> int:
    """With so many times as many images as were measured last: on a straight line through the last two measurements, of
    which each is of twice as many as the one before; from one alone, with what that many images usually take at most."""
    last = found[-1]["workspace"]
    growth = min(last, most_usual // found[-1]["count"]) if len(found) == 1 else 2 * max(0, last - found[-2]["workspace"])
    return last + (images - 1) * growth


def _counts(bench: Bench, call: Call) -> list[int]:
    """In how many parts a convolution may run."""
    if not bench.may_run_in_parts or call.op not in CONVOLUTIONS or call.device.type != "cuda":
        return []
    images = bench.of(call.read()[0]).size[0]
    return [count for count in _CONVOLUTION_PARTS if images >= 2 * count]


def norm_parts(bench: Bench, number: int, tensors: list, whole: Kept) -> Kept | None:
    """On how many parts at once the statistics of a batch norm, or its backward, take the least, with cost and
    workspace. None: on the whole batch."""
    call, best = bench.calls[number], None
    is_backward = call.op in NORM_BACKWARDS
    can_run_so = is_backward or call.op in NORMS and call.renewal >= 0
    if not bench.may_run_in_parts or not can_run_so or not has_kernel("aten::batch_norm_stats", call.device):
        return None
    if bench.bytes(call.read()[0]) < _LARGE_NORM:
        return None
    least = whole["cost"] if is_backward else math.inf  # statistics are only a part of what a batch norm does
    for count in _NORM_PARTS if is_backward else _STATISTICS_PARTS:
        measured = _measured_otherwise(bench, number, tensors, whole, parts=count)
        if measured is None or measured["cost"] > CLEARLY_LESS * least:
            break
        least = measured["cost"]
        best = {"cost": measured["cost"], "workspace": measured["workspace"], "fixed_parts": count}
    return best


def more_at_once(bench: Bench, number: int, tensors: list, whole: Kept) -> int | None:
    """How much more workspace a convolution's backward takes with both of its halves at once, if that takes clearly
    less time; less than 0 where one half's workspace is gone before the other's result is there. None: it does not."""
    call = bench.calls[number]
    can_run_so = bench.may_run_at_once and call.op == "aten::convolution_backward"
    if not can_run_so or call.device.type != "cuda" or -1 in call.made()[:2]:
        return None
    measured = _measured_otherwise(bench, number, tensors, whole, at_once=True)
    if measured is None or measured["cost"] > CLEARLY_LESS * whole["cost"]:
        return None
    return measured["workspace"] - whole["workspace"]


def _measured_otherwise(bench: Bench, number: int, tensors: list, other: Kept | None, **way) -> Kept | None:
    """In parts, or halves at once. None: it can't be, or its results lie otherwise than by the other way."""
    try:
        bench.run(number, tensors, **way)
        measured = bench.measured(number, tensors, **way)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        log.info("%s does not run with %s: %s", bench.calls[number].where, way, first_line(error))
        return None
    if other is not None and any(a != b for a, b in zip(measured["results"], other["results"]) if a is not None):
        return None
    return measured


def measure_renewal(bench: Bench, number: int) -> Kept | None:
    """What its renewal takes, and whether that is as good: makes the same bits of numbers that are drawn for it, and
    reads little that would not be there. Empty: it can't be. None: can't be told now."""
    if not bench.fits(bench.calls[bench.calls[number].renewal], results=3):  # both ways', and where they are the same
        return None
    tensors = given_to_renew(bench, number)
    for slot, tensor in tensors:
        if tensor.is_floating_point():
            bench.whole(slot, tensor).normal_(8, 3)  # far from zero: means that are a little off show as well
    try:
        first, again, given = renew(bench, number, tensors)
        kept = sum(tensor.untyped_storage().nbytes() for tensor in first[1:])
        is_little = 100 * kept <= first[0].untyped_storage().nbytes()
        is_sure = first[0].numel() >= _MANY and first[0].dtype.itemsize >= 4
        is_as_good = is_little and is_sure and _same(first[0], again)
        del first, again
        renewed = bench.measured(bench.calls[number].renewal, given)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        log.info("%s could not be renewed: %s", bench.calls[number].where, first_line(error))
        return {} if "normalize wants" in str(error) else None  # it is no fault of the moment: see normalize.h
    return {"cost": renewed["cost"], "workspace": renewed["workspace"], "as_good": is_as_good}


def given_to_renew(bench: Bench, number: int) -> list[tuple[int, torch.Tensor]]:
    """Made up, by slot: what a call, its tail and its renewal are given by others."""
    call = bench.calls[number]
    slots = dict.fromkeys(call.read() + bench.calls[call.renewal].read())
    return [(slot, bench.made_up(slot)) for slot in slots if slot not in call.made()]


def renew(bench: Bench, number: int, tensors: list) -> tuple[list[torch.Tensor], torch.Tensor, list]:
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
