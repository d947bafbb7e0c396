# SPDX-License-Identifier: Apache-2.0
"""From the traced operations of a training step to a graph that can be planned, and a program that can be run.

A value of the graph is a storage at one version (versions.py). Ops are calls that run together (grouping.py), tied
where they have to stay in order without sharing data (ordering.py). A program says the same in calls (slots.py); an op
that changes a tensor in place may write its output over its input.
"""

from __future__ import annotations

from dataclasses import dataclass

from .counters import count_together
from .grouping import Grouping, Op
from .joint import Trace
from .ordering import tie
from .program import Operation, Program, Takeover
from .reuse import reuse
from .slots import Slots
from .tracer import Geometry
from .versions import Version, Versions

HELD = "held by the caller"  # a value: what is allocated between forward and backward, and stays


@dataclass
class Lowered:
    """A training step as a graph (JSON) and as a program."""

    trace: Trace
    graph: dict
    program: Program
    tensor_of_slot: list[int]  # of the trace
    reusing: list[int]  # ops that overwrite where eager takes new memory

    @property
    def outside(self) -> int:
        return self.program.outside

    def geometry(self, slot: int) -> Geometry:
        return self.trace.tensors[self.tensor_of_slot[slot]]


def lower(trace: Trace, *, name: str = "model", grads_kept: list[bool] | None = None) -> Lowered:
    """`grads_kept`: by input, does its gradient stay after backward? Not where one is there to be added to."""
    versions = Versions(reuse(count_together(trace)))
    grouping = Grouping(versions, merging=True)
    if not grouping.is_in_order():
        grouping = Grouping(versions, merging=False)  # the traced order, which is topological
    grads_kept = grads_kept or [True] * len(trace.inputs)
    tie(grouping.ops, versions, grads_kept)
    return _Builder(grouping, name, grads_kept).lowered()


class _Builder:
    def __init__(self, grouping: Grouping, name: str, grads_kept: list[bool]):
        self._grouping, self._versions, self._trace = grouping, grouping.versions, grouping.versions.trace
        self._kept = set(self._versions.outputs)
        self._kept |= {gradient for gradient, kept in zip(self._versions.gradients, grads_kept) if kept}
        self._name = name
        self._names: dict[str, int] = {}
        self._values: list[dict] = []
        self._ops: list[dict] = []
        self._operations: list[Operation] = []
        self._value_of: dict[Version | str, int] = {}  # by version, or name of a tie
        self._slots = Slots(grouping, self._value_of)

    def lowered(self) -> Lowered:
        for number, storage in enumerate(sorted(self._versions.resident)):
            self._new_value(Version(storage, 0), f"resident{number}", self._bytes(storage), resident=True)
        for op in self._grouping.ops:
            self._add_op(op)
        graph = {"format": "reprise-graph", "version": 1, "name": self._name, "cost_unit": "ns",
                 "values": self._values, "ops": self._ops}
        reusing = [i for i, op in enumerate(self._grouping.ops) if any(self._trace.calls[c].plain for c in op.calls)]
        return Lowered(self._trace, graph, self._program(), self._slots.tensors, reusing)

    def _add_op(self, op: Op) -> None:
        is_outside = op.phase == "loss"
        name, kind = ("outside", "the caller, between forward and backward") if is_outside else self._described(op)
        name = self._unique(name)
        inputs = [self._value_of[self._first_if_resident(version)] for version in sorted(op.reads)]
        inputs += [self._value_of[tie] for tie in op.ties_in]
        made = sorted(version for version in op.makes if version.storage not in self._versions.resident)
        is_kept = [version in self._kept and not is_outside for version in made]
        outputs = [self._new_value(version, f"given{i}" if is_outside else f"{name}:{i}", self._bytes(version.storage),
                                   keep=is_kept[i]) for i, version in enumerate(made)]
        outputs += [self._new_value(tie, tie, 0, keep=True) for tie in [HELD] * is_outside + op.ties_out]
        entry = {"name": name, "kind": kind, "cost": 0, "phase": op.phase,
                 "inputs": [self._values[value]["name"] for value in dict.fromkeys(inputs)],
                 "outputs": [self._values[value]["name"] for value in outputs]}
        if any(is_kept) or not op.recomputable:
            entry["recomputable"] = False
        takeovers = [takeover for i in op.calls for takeover in self._takeovers(op, i)]
        overwrites = self._overwrites(takeovers)
        if overwrites:
            entry["overwrites"] = overwrites
        self._ops.append(entry)
        self._operations.append(Operation(
            calls=self._slots.add_calls(op.calls), takeovers=takeovers, made=outputs,
            read=[value for value in dict.fromkeys(inputs) if "resident" not in self._values[value]]))

    def _described(self, op: Op) -> tuple[str, str]:
        """Where it comes from, and what it does."""
        calls = [self._trace.calls[i] for i in op.calls]
        names = [call.name.removeprefix("aten::") for call in calls]
        module, line = calls[0].origin.module or names[0], calls[0].origin.line
        kind = "+".join(names)
        return f"{module} backward" if op.phase == "backward" else module, f"{kind} at {line}" if line else kind

    def _takeovers(self, op: Op, i: int) -> list[Takeover]:
        """Call `i` of the op changes these; not what the op made itself, nor what is resident."""
        found = []
        for storage in self._trace.calls[i].mutated:
            before = self._versions.before[i][storage]
            if storage in self._versions.resident or before in self._grouping.made_inside(op):
                continue
            source = self._grouping.leaving(before)
            target = self._grouping.leaving(Version(storage, before.changes + 1))
            found.append(Takeover(self._value_of[source], self._slots.root(source), self._slots.root(target)))
        return found

    def _overwrites(self, takeovers: list[Takeover]) -> dict[str, str]:
        """Outputs that may lie where inputs did: not where those are kept, or the caller's."""
        names = {}
        for value, source, target in takeovers:
            is_given = self._versions.storage(self._slots.tensors[source]) in self._versions.tangents
            if not is_given and "keep" not in self._values[value]:
                names[self._values[self._slots.values[target]]["name"]] = self._values[value]["name"]
        return names

    def _program(self) -> Program:
        trace, versions, slots = self._trace, self._versions, self._slots

        def placed(tensors: list[int | None], at: list[Version | None] | None = None) -> list[int]:
            at = at or [None if t is None else Version(versions.storage(t), 0) for t in tensors]
            return [-1 if t is None else slots.slot(t, version) for t, version in zip(tensors, at)]

        outputs, tangents = placed(trace.outputs, versions.outputs), placed(trace.tangents)
        gradients, inputs = placed(trace.gradients, versions.gradients), placed(trace.inputs)
        constants = placed([tensor for tensor, _ in trace.constants])
        changed = {s for i in versions.calls for s in trace.calls[i].mutated}
        read = {v.storage for i in versions.calls for v in versions.reads[i]
                if v.storage not in trace.calls[i].mutated or trace.calls[i].created}

        def among(found: list[int], storages: set[int]) -> list[int]:
            return [slot for slot in dict.fromkeys(found)
                    if slot >= 0 and versions.storage(slots.tensors[slot]) in storages]

        slots_of_value: list[list[int]] = [[] for _ in self._values]
        for slot, value in enumerate(slots.values):
            if value >= 0:
                slots_of_value[value].append(slot)
        return Program(
            calls=slots.calls, operations=self._operations, slots_of_value=slots_of_value, view_of_slot=slots.views,
            value_of_slot=slots.values, outside=[op.phase for op in self._grouping.ops].index("loss"),
            inputs=[slot for slot in inputs if slot >= 0],
            constants=[(slot, tensor) for slot, (_, tensor) in zip(constants, trace.constants)],
            fresh=among(constants, changed), remembered=among(inputs, changed & read),
            outputs=outputs, differentiable=trace.differentiable, tangents=tangents,
            gradients=[gradient for gradient, slot in zip(gradients, inputs) if slot >= 0],
            reached=[is_reached for is_reached, slot in zip(trace.reached, inputs) if slot >= 0])

    def _bytes(self, storage: int) -> int:
        return self._trace.storages[storage].bytes

    def _first_if_resident(self, version: Version) -> Version:
        """Changes of what is resident are no values of their own."""
        return Version(version.storage, 0) if version.storage in self._versions.resident else version

    def _new_value(self, key: Version | str, name: str, bytes_: int, **marks: bool) -> int:
        marks = {mark: True for mark, is_set in marks.items() if is_set}
        self._values.append({"name": self._unique(name), "bytes": bytes_} | marks)
        self._value_of[key] = len(self._values) - 1
        return self._value_of[key]

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else self._unique(f"{name}#{count}")
