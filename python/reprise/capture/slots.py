# SPDX-License-Identifier: Apache-2.0
"""Where the tensors of a step lie, and its calls in these terms.

A tensor at one version has a slot. A view's slot comes with the call that derives it from another of the same value.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from ..errors import CaptureError
from . import program
from .grouping import Grouping
from .renewal import renewal
from .tracer import Call, Origin
from .versions import Version


class Slots:
    def __init__(self, grouping: Grouping, value_of: dict[Version, int]):
        self.calls: list[program.Call] = []
        self.tensors: list[int] = []  # by slot: of the trace
        self.values: list[int] = []  # by slot: of the graph; -1: resident
        self.views: list[int] = []  # by slot: the call that derives it, or -1
        self._grouping, self._versions, self._trace = grouping, grouping.versions, grouping.versions.trace
        self._value_of = value_of  # grows with the graph
        self._known: dict[tuple[int, int], int] = {}  # tensor and value → slot
        self._derived: dict[tuple[int, int], int] = {}  # call of the trace that makes views, and value → call
        self._call_of: dict[int, int] = {}  # call of the trace → call
        self._changed = {storage for call in self._trace.calls for storage in call.mutated}
        given = [*self._trace.inputs, *self._trace.tangents, *(tensor for tensor, _ in self._trace.constants)]
        self._given = {tensor for tensor in given if tensor is not None}
        self._roots: dict[int, int] = {}  # storage → the tensor that it was made as
        for tensor in given:
            if tensor is not None:
                self._roots.setdefault(self._versions.storage(tensor), tensor)
        for call in self._trace.calls:
            for tensor in call.returned():
                if self._versions.storage(tensor) in call.created:
                    self._roots.setdefault(self._versions.storage(tensor), tensor)

    def slot(self, tensor: int, version: Version) -> int:
        """Where a tensor of that version lies; with the call that derives it, where it is a view."""
        is_new = (tensor, self._value(version)) not in self._known
        slot = self._place(tensor, version)
        if is_new and tensor != self._roots[version.storage] and tensor not in self._given:
            self.views[slot] = self._derive(tensor, version)
        return slot

    def root(self, version: Version) -> int:
        """The slot of the whole storage."""
        return self.slot(self._roots[version.storage], version)

    def add_calls(self, indices: list[int]) -> list[int]:
        """Calls of the trace that are an op. Their numbers."""
        calls = [self._add_call(index) for index in indices]
        if calls:
            self._add_renewal(indices[0], calls)
        return calls

    def _add_call(self, index: int) -> int:
        """Its number."""
        call, before = self._trace.calls[index], self._versions.before[index]

        def argument(tensor: int) -> int:
            storage = self._versions.storage(tensor)
            version = before.get(storage, Version(storage, 0))
            if storage in call.mutated and storage not in self._versions.resident:
                version = Version(storage, version.changes + 1)
            return self.slot(tensor, self._grouping.leaving(version))

        def result(tensor: int) -> int:
            version = self._grouping.leaving(Version(self._versions.storage(tensor), 0))
            is_made = version.storage in call.created and version in self._value_of
            return self.slot(tensor, version) if is_made and tensor == self._roots[version.storage] else -1

        self._call_of[index] = self._append(call, argument, result)
        return self._call_of[index]

    def _add_renewal(self, index: int, calls: list[int]) -> None:
        """Of an op's first call, if nothing changes its other results, which it would read."""
        if any(self._versions.storage(tensor) in self._changed for tensor in self._trace.calls[index].returned()[1:]):
            return
        first, *following = (self.calls[number] for number in calls)
        if (found := renewal(first, following, lambda slot: self._trace.tensors[self.tensors[slot]])) is not None:
            other, tail = found
            first.renewal, first.tail = len(self.calls), calls[1:1 + tail]
            self.calls.append(other)

    def _value(self, version: Version) -> int:
        return -1 if version.storage in self._versions.resident else self._value_of[version]

    def _place(self, tensor: int, version: Version) -> int:
        """Its slot, new or known."""
        key = (tensor, self._value(version))
        if key not in self._known:
            self._known[key] = len(self.tensors)
            self.tensors.append(tensor)
            self.values.append(key[1])
            self.views.append(-1)
        return self._known[key]

    def _derive(self, tensor: int, version: Version) -> int:
        """The call that makes a view."""
        source = self._trace.view_source.get(tensor)
        call = None if source is None else self._trace.calls[source]
        if call is None or torch.Tag.inplace_view in call.func.tags:
            return self._derive_by_strides(tensor, version)
        key = (source, self._value(version))
        if key not in self._derived:
            made = self._append(call, lambda t: self.slot(t, version), lambda t: self._place(t, version))
            for slot in self.calls[made].made():
                if slot >= 0:
                    self.views[slot] = made
            self._derived[key] = made
        return self._derived[key]

    def _derive_by_strides(self, tensor: int, version: Version) -> int:
        geometry, root = self._trace.tensors[tensor], self._roots[version.storage]
        whole = self._trace.tensors[root]
        if (geometry.dtype, geometry.conjugated, geometry.negated) != (whole.dtype, whole.conjugated, whole.negated):
            raise CaptureError("a view of other numbers than it is made of (their conjugates, or of another type) is "
                               "turned, squeezed or unsqueezed in place: that can't be planned")
        offset = geometry.offset - whole.offset  # where an input begins may change
        shape = [("c", list(geometry.size)), ("c", list(geometry.stride)), ("c", offset)]
        call = Call(torch.ops.reprise.window.default, [("t", root), *shape], [tensor], False, Origin(),
                    device=self._trace.storages[geometry.storage].device)
        return self._append(call, lambda t: self.slot(t, version), lambda t: self._place(t, version))

    def _append(self, call: Call, argument: Callable[[int], int], result: Callable[[int], int]) -> int:
        """`argument` and `result` say where its tensors lie."""
        arguments = [program.Constant(value) if kind == "c" else _each(value, argument)
                     for kind, value in call.arguments]
        results = [_each(tensors, result) for tensors in call.results]
        schema, origin = call.func._schema, call.origin
        where = " ".join(word for word in (
            f"'{origin.module}'" if origin.module else "", schema.name, "backward" if call.backward else "",
            f"({origin.line})" if origin.line else "") if word)
        bumped = [i for i, known in enumerate(schema.arguments)
                  if known.alias_info is not None and known.alias_info.is_write
                  and any(self.values[slot] < 0 for slot in program.slots_of(arguments[i]))]
        scratch = [i for i in call.scratch if all(self.values[slot] < 0 for slot in program.slots_of(arguments[i]))]
        self.calls.append(program.Call(
            schema.name, schema.overload_name, None if call.plain is None else call.plain._schema.overload_name,
            arguments, results, scratch, list(call.unread), bumped,
            call.random, -1 if call.replays is None else self._call_of[call.replays], call.device, where))
        return len(self.calls) - 1


def _each(tensors: Any, slot: Callable[[int], int]) -> int | list[int]:
    """Slots for a tensor, None, or a list of these."""
    if isinstance(tensors, list):
        return [_each(tensor, slot) for tensor in tensors]
    return -1 if tensors is None else slot(tensors)
