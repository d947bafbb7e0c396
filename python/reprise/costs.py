# SPDX-License-Identifier: Apache-2.0
"""What each op of a captured step takes, by its calls: time, workspace and the sizes of its results."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from .bench import Bench, rounded
from .cache import cache
from .call_costs import Measured, of_call
from .capture.lower import Lowered
from .other_ways import CLEARLY_LESS
from .timing import GraphTimer


@dataclass
class InParts:
    """What an op takes where a call of its runs on one part of the batch after the other."""

    cost: int
    workspace: int
    call: int


@dataclass
class AtOnce:
    """What an op takes with both halves of a convolution's backward at once."""

    call: int
    more: int  # bytes, than its workspace
    less: int  # bytes, than eager takes, as it runs whole


@dataclass
class Ways:
    """How a step can run other than as eager does."""

    by_parts: dict[int, dict[int, InParts]] = field(default_factory=dict)  # by op and count: the more, the less space
    fixed_parts: dict[int, int] = field(default_factory=dict)  # by call, of batch norms that always run in parts
    renewed: list[int] = field(default_factory=list)  # calls that take less by their renewals
    at_once: dict[int, AtOnce] = field(default_factory=dict)  # by op
    kept: int = 0  # bytes that renewals read, which stay from first runs on


def add_costs(lowered: Lowered, program, *, how: str, in_graphs: bool, most_bytes: int | None,
              may_run_in_parts: bool, may_run_at_once: bool) -> Ways:
    """Sets costs, workspace and sizes of `lowered.graph`. No measurement's tensors take more than `most_bytes`; its
    workspace, which is not known before, comes on top, but for convolutions that may run in parts. `in_graphs`: times
    are those of kernels in CUDA graphs, whose launches take next to nothing. An op's cost is what it takes to run it
    again; what first runs take beyond that has to be paid once, and is the cost of what is outside."""
    graph = lowered.graph
    device = lowered.trace.device
    for value in graph["values"]:
        value["bytes"] = rounded(value["bytes"], device)
    graph["cost_unit"] = "ns" if how == "profile" else "flops"
    ways, first_runs = Ways(), 0
    timer = GraphTimer(device, most_bytes) if in_graphs and how == "profile" else None
    if timer is not None and most_bytes is not None:
        most_bytes -= timer.bytes
    bench = Bench(lowered, program, timer, most_bytes, may_run_in_parts, may_run_at_once)
    on_cuda = device.type == "cuda"
    with torch.cuda.device(device) if on_cuda else nullcontext(), torch.random.fork_rng([device] if on_cuda else []):
        for index, operation in enumerate(lowered.program.operations):
            first_runs += _add_op(bench, ways, index, operation.calls, how)
    graph["ops"][lowered.outside]["cost"] += first_runs
    for slot, result in bench.real.items():
        value = lowered.program.value_of_slot[slot]
        if value >= 0:
            graph["values"][value]["bytes"] = rounded(result.bytes, device)
    _keep_overwriting_equal(graph)
    ways.kept = sum(_kept_bytes(lowered, number) for number in ways.renewed)
    cache().save()
    return ways


def _add_op(bench: Bench, ways: Ways, index: int, calls: list[int], how: str) -> int:
    """Sets the cost and the workspace of an op, and notes how else it can run. Returns what its first run takes beyond
    that cost."""
    op = bench.lowered.graph["ops"][index]
    found = [of_call(bench, number, how) for number in calls]
    first, again = _runs(bench, calls, found)
    op["cost"] = _cost(again)
    op["workspace"] = max((measured.workspace for measured in first + again), default=0)
    if again is not found:
        ways.renewed.append(calls[0])
    if first is not found:
        ways.fixed_parts[calls[0]] = first[0].fixed_parts
    for number, measured in zip(calls, found):
        if measured.more_at_once is not None:
            ways.at_once[index] = AtOnce(number, measured.more_at_once, measured.less_at_once)
        if measured.fixed_parts > 1:
            ways.fixed_parts[number] = measured.fixed_parts
        if measured.by_parts:
            others = max((other.workspace for other in found if other is not measured), default=0)
            ways.by_parts[index] = {
                count: InParts(op["cost"] - measured.cost + part.cost, max(part.workspace, others), number)
                for count, part in measured.by_parts.items()}
    return _cost(first) - op["cost"]


def _cost(run: list[Measured]) -> int:
    return sum(measured.cost for measured in run)


def _runs(bench: Bench, calls: list[int], found: list[Measured]) -> tuple[list[Measured], list[Measured]]:
    """What an op runs first, and what again: its calls, and again maybe a renewal, which makes up for the first of them
    and for its tail; or first statistics on parts at once and the renewal, where that takes clearly less time, or no
    more, and the renewal could not be used otherwise."""
    renewal = found[0].renewal if found else None
    if renewal is None:
        return found, found
    renewed = [renewal, *found[1 + len(bench.calls[calls[0]].tail):]]
    is_better = found[0].is_renewal_as_good and _cost(renewed) < _cost(found)
    if found[0].statistics is not None:
        in_parts = [found[0].statistics, *renewed]
        if _cost(in_parts) <= (CLEARLY_LESS if is_better else 1) * _cost(found):
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
