# SPDX-License-Identifier: Apache-2.0
"""Which version of each storage the calls of a trace read and make. Calls that nobody needs are left out.

Views are no calls here: they are derived where they are read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from .joint import Trace
from .tracer import Call


class Version(NamedTuple):
    storage: int
    changes: int  # how often it was changed


class Versions:
    def __init__(self, trace: Trace):
        self.trace = trace
        self.tangents = self._storages(trace.tangents)
        self.resident = self._storages(trace.inputs) | self._storages([t for t, _ in trace.constants])
        self._changes: dict[int, int] = defaultdict(int)  # by storage, so far
        # By call: the versions that it reads and makes, and those of all storages that it touches, before it.
        self.reads: dict[int, set[Version]] = {}
        self.makes: dict[int, set[Version]] = {}
        self.before: dict[int, dict[int, Version]] = {}
        self.forward_end = next((i for i, call in enumerate(trace.calls) if call.backward), len(trace.calls))
        for i in range(self.forward_end):
            self._follow(i)
        self.outputs = self._now(trace.outputs)  # None: no tensor
        for i in range(self.forward_end, len(trace.calls)):
            self._follow(i)
        self.gradients = self._now(trace.gradients)
        self.wanted = set(self.outputs + self.gradients) - {None}
        self.calls = self._needed()
        self.producer = {version: i for i in self.calls for version in self.makes[i]}
        self.readers: dict[Version, list[int]] = defaultdict(list)
        for i in self.calls:
            for version in self.reads[i]:
                self.readers[version].append(i)

    def storage(self, tensor: int) -> int:
        return self.trace.tensors[tensor].storage

    def changed(self, i: int) -> set[Version]:
        """What call `i` changes, as it is before."""
        return {self.before[i][storage] for storage in self.trace.calls[i].mutated}

    def is_changed_between(self, version: Version, first: int, last: int) -> bool:
        following = self.producer.get(Version(version.storage, version.changes + 1))
        return following is not None and first < following < last

    def _storages(self, tensors: list[int | None]) -> set[int]:
        return {self.storage(tensor) for tensor in tensors if tensor is not None}

    def _now(self, tensors: list[int | None]) -> list[Version | None]:
        return [None if t is None else Version(self.storage(t), self._changes[self.storage(t)]) for t in tensors]

    def _follow(self, i: int) -> None:
        call = self.trace.calls[i]
        if call.is_view:
            return
        read = self._storages(call.read()) | self._handed_unread(call)
        self.before[i] = {s: Version(s, self._changes[s]) for s in read | set(call.mutated)}
        self.reads[i] = {self.before[i][s] for s in read}
        self.makes[i] = {Version(s, 0) for s in call.created}
        for storage in call.mutated:
            self._changes[storage] += 1
            self.makes[i].add(Version(storage, self._changes[storage]))

    def _handed_unread(self, call: Call) -> set[int]:
        """What a call is handed and does not look at has to be there all the same, unless it always is."""
        handed = [value for kind, value in (call.arguments[p] for p in call.unread) if kind == "t"]
        return self._storages(handed) - self.resident

    def _needed(self) -> list[int]:
        """Calls whose results somebody wants, or that change something."""
        wanted = set(self.wanted)
        needed: list[int] = []
        for i in reversed(self.reads):
            call = self.trace.calls[i]
            if self.makes[i] & wanted or call.random or call.asserts or self.resident.intersection(call.mutated):
                needed.append(i)
                wanted |= self.reads[i] | self.changed(i)
        return needed[::-1]
