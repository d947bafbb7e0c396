# SPDX-License-Identifier: Apache-2.0
"""What has to stay in order without sharing data is tied, by values of no bytes: the first runs of random operations,
each with those that draw its numbers again; changes of inputs and what reads them; gradients that are let go and what
reads their parameters.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Iterator

from .grouping import Op
from .versions import Version, Versions

Tie = tuple[Op, Op]  # first, second


def tie(ops: list[Op], versions: Versions, grads_kept: list[bool]) -> None:
    """Sets the ties of ops, which are in program order, and finds those that can't be run again."""
    ties = [*_effects(ops, versions), *_gradients_let_go(ops, versions, grads_kept)]
    for number, (first, second) in enumerate(ties, start=1):
        first.ties_out.append(f"order{number}")
        second.ties_in.append(f"order{number}")


def _effects(ops: list[Op], versions: Versions) -> Iterator[Tie]:
    ever_changed = {s for op in ops for c in op.calls for s in versions.trace.calls[c].mutated} & versions.resident
    changers: dict[int, Op] = {}  # of a resident storage: the last so far
    readers: dict[int, list[Op]] = defaultdict(list)
    last_random: Op | None = None
    outside: Op | None = None
    op_of = {c: op for op in ops for c in op.calls}
    for op in ops:
        calls = [versions.trace.calls[c] for c in op.calls]
        yield from ((op_of[call.replays], op) for call in calls if call.replays is not None)
        is_outside = op.phase == "loss"
        draws = any(call.random and call.replays is None for call in calls)
        if last_random is not None and (draws or is_outside):
            yield last_random, op
        if draws or (is_outside and last_random is not None):
            last_random = op
        if is_outside:  # the caller sees all changes of forward, and none of backward
            outside = op
            yield from ((changer, op) for changer in dict.fromkeys(changers.values()))
            continue
        read = {v.storage for v in op.reads} & versions.resident
        changed = {storage for call in calls for storage in call.mutated} & versions.resident
        if changed and outside is not None:  # by a checkpointed region that runs again
            yield outside, op
        yield from ((changers[storage], op) for storage in sorted(read) if storage in changers)
        for storage in sorted(changed):
            yield from ((reader, op) for reader in readers[storage] if reader is not op)
            if storage in changers and storage not in read:
                yield changers[storage], op
            changers[storage] = op
        scratch = {versions.storage(call.arguments[p][1]) for call in calls for p in call.scratch
                   if call.arguments[p][0] == "t"}
        if (changed | read & ever_changed) - scratch:  # a second forward would change what is read again
            op.recomputable = False
        for storage in read - changed:
            readers[storage].append(op)


def _gradients_let_go(ops: list[Op], versions: Versions, grads_kept: list[bool]) -> Iterator[Tie]:
    """A gradient that is added to one that is there is let go when it is handed over, and that has to wait for
    what still reads its parameter."""
    backward = [op for op in ops if op.phase == "backward"]
    maker = {version: op for op in backward for version in op.makes}
    for tensor, gradient, kept in zip(versions.trace.inputs, versions.gradients, grads_kept):
        if kept or tensor is None or gradient not in maker:
            continue
        op, parameter = maker[gradient], Version(versions.storage(tensor), 0)
        yield from ((reader, op) for reader in backward if parameter in reader.reads and reader.anchor < op.anchor)
