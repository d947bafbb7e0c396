# SPDX-License-Identifier: Apache-2.0
"""Counters of the model that nobody reads, as batch norms have of their batches, are counted up by one operation."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import torch

from .joint import Trace
from .tracer import Call

aten = torch.ops.aten


def count_together(trace: Trace) -> Trace:
    """The trace with the first of such operations counting for all of them."""
    touched = Counter(storage for call in trace.calls if not call.is_view for storage in _storages(trace, call))
    alike: dict[tuple, list[int]] = defaultdict(list)
    for i, call in enumerate(trace.calls):
        if _counts(trace, call) and touched[call.mutated[0]] == 1:
            alike[call.arguments[1][1], trace.tensors[call.arguments[0][1]].dtype, call.device].append(i)
    calls: dict[int, Call] = dict(enumerate(trace.calls))
    for first, *others in alike.values():
        counters = [calls[i].arguments[0][1] for i in (first, *others)]
        mutated = sorted(calls[i].mutated[0] for i in (first, *others))
        calls[first] = replace(calls[first], func=aten._foreach_add_.Scalar, results=[], mutated=mutated,
                               arguments=[("ts", counters), calls[first].arguments[1]])
        for i in others:
            del calls[i]
    place = {i: number for number, i in enumerate(calls)}
    return replace(trace, view_source={tensor: place[i] for tensor, i in trace.view_source.items()},
                   calls=[call if call.replays is None else replace(call, replays=place[call.replays])
                          for call in calls.values()])


def _storages(trace: Trace, call: Call) -> set[int]:
    return {trace.tensors[tensor].storage for tensor in call.read()}.union(call.mutated)


def _counts(trace: Trace, call: Call) -> bool:
    """Does it add a constant to a whole number of the model's, in forward?"""
    if call.func is not aten.add_.Tensor or call.backward or call.arguments[1][0] != "c":
        return False
    counter = trace.tensors[call.arguments[0][1]]
    return (call.arguments[0][1] in trace.inputs and not counter.size and not counter.dtype.is_floating_point
            and not counter.dtype.is_complex and call.arguments[2] == ("c", 1))
