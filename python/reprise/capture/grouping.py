# SPDX-License-Identifier: Apache-2.0
"""The ops of a graph: calls that run together.

An operation that changes a tensor in place becomes part of the op that made the tensor, where nothing looks at it in
between, and else an op of its own. What the caller does between forward and backward is an op as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .versions import Version, Versions


@dataclass(eq=False)
class Op:
    calls: list[int]  # of the trace
    anchor: int  # its place in program order: a call
    phase: str  # forward, loss (the caller's) or backward
    reads: set[Version] = field(default_factory=set)
    makes: set[Version] = field(default_factory=set)
    recomputable: bool = True
    ties_in: list[str] = field(default_factory=list)  # names of values of no bytes, see ordering.py
    ties_out: list[str] = field(default_factory=list)


class Grouping:
    """`ops` in program order."""

    def __init__(self, versions: Versions, merging: bool):
        self.versions = versions
        self._op_of: dict[int, Op] = {}
        self._final: dict[Version, Version] = {}  # a version inside an op → the one that follows it there
        for i in versions.calls:
            op = self._op_to_join(i) if merging else None
            if op is None:
                op = Op([], i, "backward" if versions.trace.calls[i].backward else "forward")
            else:
                self._final |= {v: Version(v.storage, v.changes + 1) for v in versions.changed(i)}
            op.calls.append(i)
            self._op_of[i] = op
        ops = list(dict.fromkeys(self._op_of.values()))
        for op in ops:
            inner = self.made_inside(op)
            op.makes = {self.leaving(v) for v in inner}
            op.reads = {self.leaving(v) for i in op.calls for v in (versions.reads[i] | versions.changed(i)) - inner}
        outside = Op([], versions.forward_end, "loss", set(versions.outputs) - {None},
                     {Version(storage, 0) for storage in versions.tangents}, recomputable=False)
        self.ops = sorted([outside, *ops], key=lambda op: op.anchor)  # stable: before the first of backward

    def made_inside(self, op: Op) -> set[Version]:
        return set().union(*(self.versions.makes[i] for i in op.calls))

    def leaving(self, version: Version) -> Version:
        """The version that leaves the op which makes `version`."""
        while version in self._final:
            version = self._final[version]
        return version

    def is_in_order(self) -> bool:
        made: set[Version] = set()
        for op in self.ops:
            if any(v not in made and v.storage not in self.versions.resident for v in op.reads):
                return False
            made |= op.makes
        return True

    def _op_to_join(self, i: int) -> Op | None:
        """The op that made what call `i` changes, where nothing else looks at it before."""
        versions, call = self.versions, self.versions.trace.calls[i]
        if call.plain is not None or len(call.mutated) != 1 or call.mutated[0] in versions.resident | versions.tangents:
            return None
        version = versions.before[i][call.mutated[0]]
        if version not in versions.producer or version in versions.wanted:
            return None
        op = self._op_of[versions.producer[version]]
        is_read_elsewhere = any(reader != i for reader in versions.readers[version])
        if is_read_elsewhere or (op.phase == "backward") != call.backward:
            return None
        if self._can_run_earlier(i, op, version):
            return op
        if self._can_run_later(op, i):
            op.anchor = i
            return op
        return None

    def _can_run_earlier(self, i: int, op: Op, version: Version) -> bool:
        """May call `i`, which changes `version`, run where `op` does?"""
        versions = self.versions
        others = versions.reads[i] - {version}
        return (not versions.trace.calls[i].random
                and all(self._op_of[versions.producer[v]].anchor < op.anchor for v in others if v in versions.producer)
                and not any(versions.is_changed_between(v, op.anchor, i) for v in others))

    def _can_run_later(self, op: Op, i: int) -> bool:
        """May `op` wait until call `i`?"""
        versions = self.versions
        made = self.made_inside(op)
        reads = set().union(*(versions.reads[c] for c in op.calls)) - made
        changed = {v for v in made if v.storage in versions.resident}  # as running statistics are
        return not (any(versions.trace.calls[c].random for c in op.calls)
                    or any(reader < i for v in made for reader in versions.readers[v] if reader not in op.calls)
                    or any(versions.is_changed_between(v, op.anchor, i) for v in reads | changed))
