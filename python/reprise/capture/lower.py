# SPDX-License-Identifier: Apache-2.0
"""From the recorded operations of a training step to a graph that can be planned, and a program that can be run.

A value of the graph is a storage at one version. Views are derived where they are read. An operation that
changes a tensor in place becomes part of the op that made the tensor, where nothing looks at it in between, and
else an op of its own whose result may overwrite its input. What has to stay in order without sharing data (the
first runs of random operations, changes of buffers) is tied by values of no bytes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch

from . import program
from .joint import Trace
from .recorder import Call

HELD = "held by the caller"  # a value: what is allocated between forward and backward, and stays

Version = tuple[int, int]  # storage, how often it was changed


@dataclass
class Op:
    """An op of the graph: calls of the trace that run together."""

    calls: list[int]
    anchor: int  # its place in program order
    backward: bool = False
    reads: set = field(default_factory=set)  # versions
    makes: set = field(default_factory=set)
    again: bool = True
    name: str = ""


@dataclass
class Lowered:
    """A training step as a graph (JSON) and as a program."""

    trace: Trace
    graph: dict
    program: program.Program
    tensor_of_slot: list[int]  # of the trace

    @property
    def outside(self) -> int:
        return self.program.outside


def lower(trace: Trace, *, name: str = "model", grads_kept: list[bool] | None = None) -> Lowered:
    """`grads_kept`: by input, does its gradient stay after backward? Not where one is there to be added to."""
    for merging in (True, False):
        lowering = _Lowering(trace, name, grads_kept, merging)
        if lowering.in_order():
            return lowering.done()
    raise AssertionError("the recorded order is topological")


class _Lowering:
    def __init__(self, trace: Trace, name: str, grads_kept: list[bool] | None, merging: bool):
        self.trace = trace
        self.name = name
        self.grads_kept = grads_kept or [True] * len(trace.inputs)
        self.resident = {trace.tensors[t].storage for t in trace.inputs if t is not None}
        self.resident |= {trace.tensors[t].storage for t, _ in trace.constants}
        self.tangents = {trace.tensors[t].storage for t in trace.tangents if t is not None}
        self._follow_versions()
        self._drop_unused()
        self._group(merging)

    # Which version each call reads and makes.
    def _follow_versions(self) -> None:
        trace = self.trace
        version: dict[int, int] = defaultdict(int)
        self.reads: dict[int, set[Version]] = {}
        self.makes: dict[int, set[Version]] = {}
        self.before: dict[int, dict[int, int]] = {}  # call → version of each storage it touches, before it
        self.forward_end = next((i for i, call in enumerate(trace.calls) if call.backward), len(trace.calls))
        output_storages = {trace.tensors[t].storage for t in trace.outputs if t is not None}
        for i, call in enumerate(trace.calls):
            if i == self.forward_end:
                self.output_versions = {(s, version[s]) for s in output_storages}
            if call.is_view:
                continue
            read = {trace.tensors[t].storage for t in call.read()} | self._unread_values(call)
            self.before[i] = {s: version[s] for s in read | set(call.mutated)}
            self.reads[i] = {(s, version[s]) for s in read}
            self.makes[i] = {(s, 0) for s in call.created}
            for storage in call.mutated:
                version[storage] += 1
                self.makes[i].add((storage, version[storage]))
        if self.forward_end == len(trace.calls):
            self.output_versions = {(s, version[s]) for s in output_storages}
        self.last_version = version
        final = [None if t is None else (trace.tensors[t].storage, version[trace.tensors[t].storage])
                 for t in trace.gradients]
        self.gradient_versions = {v for v in final if v is not None}
        self.kept_gradients = {v for v, kept in zip(final, self.grads_kept) if v is not None and kept}

    def _unread_values(self, call: Call) -> set[int]:
        """What a call is handed and does not look at has to be there all the same, unless it always is."""
        handed = {self.trace.tensors[value].storage for kind, value in (call.arguments[p] for p in call.unread)
                  if kind == "t"}
        return handed - self.resident

    # Calls whose results nobody wants, and that change nothing, are left out.
    def _drop_unused(self) -> None:
        wanted = set(self.output_versions) | set(self.gradient_versions)
        self.kept: list[int] = []
        for i in sorted(self.reads, reverse=True):
            call = self.trace.calls[i]
            changes_input = any(s in self.resident for s in call.mutated)
            if not (self.makes[i] & wanted or call.random or changes_input):
                continue
            self.kept.append(i)
            wanted |= self.reads[i] | {(s, self.before[i][s]) for s in call.mutated}
        self.kept.reverse()
        self.producer = {version: i for i in self.kept for version in self.makes[i]}
        self.readers: dict[Version, list[int]] = defaultdict(list)
        for i in self.kept:
            for version in self.reads[i]:
                self.readers[version].append(i)

    def _group(self, merging: bool) -> None:
        self.op_of: dict[int, Op] = {}
        self.final: dict[Version, Version] = {}  # a version inside an op → the one that leaves it
        for i in self.kept:
            call = self.trace.calls[i]
            op = self._op_to_join(i) if merging else None
            if op is None:
                op = Op([i], i, call.backward)
            else:
                op.calls.append(i)
                for storage in call.mutated:
                    self.final[(storage, self.before[i][storage])] = (storage, self.before[i][storage] + 1)
            self.op_of[i] = op
        self.ops: list[Op] = sorted({id(op): op for op in self.op_of.values()}.values(), key=lambda op: op.anchor)
        for op in self.ops:
            op.makes = {self._leaving(v) for i in op.calls for v in self.makes[i]}
            inner = set().union(*(self.makes[i] for i in op.calls))
            mutated = {(s, self.before[i][s]) for i in op.calls for s in self.trace.calls[i].mutated}
            op.reads = {self._leaving(v) for i in op.calls for v in self.reads[i] | mutated if v not in inner}

    def _leaving(self, version: Version) -> Version:
        while version in self.final:
            version = self.final[version]
        return version

    def _op_to_join(self, i: int) -> Op | None:
        """The op that made what call `i` changes, where nothing else looks at it before."""
        call = self.trace.calls[i]
        if len(call.mutated) != 1 or call.mutated[0] in self.resident | self.tangents:
            return None
        storage = call.mutated[0]
        version = (storage, self.before[i][storage])
        outsiders = [r for r in self.readers[version] if r != i]
        if version not in self.producer or outsiders or version in self.output_versions | self.gradient_versions:
            return None
        op = self.op_of[self.producer[version]]
        if op.backward != call.backward:
            return None
        others = self.reads[i] - {version}
        came = [self.op_of[self.producer[v]].anchor for v in others if v in self.producer]
        changed = [v for v in others if self._changed_between(v, op.anchor, i)]
        if not call.random and all(anchor < op.anchor for anchor in came) and not changed:
            return op
        is_random = any(self.trace.calls[c].random for c in op.calls)
        made = set().union(*(self.makes[c] for c in op.calls))
        read_between = [r for v in made for r in self.readers[v] if r not in op.calls and r < i]
        own_reads = set().union(*(self.reads[c] for c in op.calls)) - made
        overtaken = [v for v in own_reads if self._changed_between(v, op.anchor, i)]
        if is_random or read_between or overtaken:
            return None
        op.anchor = i
        return op

    def _changed_between(self, version: Version, first: int, last: int) -> bool:
        following = self.producer.get((version[0], version[1] + 1))
        return following is not None and first < following < last

    def in_order(self) -> bool:
        made: set[Version] = set()
        for op in self.ops:
            for version in op.reads:
                if self._is_value(version) and version[0] not in self.tangents and version not in made:
                    return False
            made |= op.makes
        return True

    def _is_value(self, version: Version) -> bool:
        return version[0] not in self.resident

    # The graph and the program.
    def done(self) -> Lowered:
        self.values: list[dict] = []
        self.value_of: dict[Version, int] = {}
        self.graph_ops: list[dict] = []
        self.operations: list[program.Operation] = []
        self.program_calls: list[program.Call] = []
        self.slots: list[tuple[int, int]] = []
        self.slot_ids: dict[tuple[int, int], int] = {}
        self.view_of_slot: list[int] = []
        self._views: dict[tuple[int, int], int] = {}
        self._program_call: dict[int, int] = {}  # call of the trace → of the program
        self._names: dict[str, int] = {}
        self._roots_of = self._find_roots()

        self._add_residents()
        forward = [op for op in self.ops if not op.backward]
        backward = [op for op in self.ops if op.backward]
        self._tie(forward, backward)
        for op in forward:
            self._add_op(op)
        outputs = [self._slot_now(t, self.output_versions) for t in self.trace.outputs]
        outside = self._add_outside()
        tangents = [None if t is None else self._slot(t, (self.trace.tensors[t].storage, 0)) for t in
                    self.trace.tangents]
        for op in backward:
            self._add_op(op)
        gradients = [self._slot_now(t, self.gradient_versions) for t in self.trace.gradients]
        inputs = [self._slot(t, (self.trace.tensors[t].storage, 0)) for t in self.trace.inputs if t is not None]
        constants = [(self._slot(t, (self.trace.tensors[t].storage, 0)), tensor) for t, tensor in self.trace.constants]
        slots_of_value: list[list[int]] = [[] for _ in self.values]
        for slot, (_, value) in enumerate(self.slots):
            if value >= 0:
                slots_of_value[value].append(slot)
        tensor_inputs = [i for i, t in enumerate(self.trace.inputs) if t is not None]
        made = program.Program(
            calls=self.program_calls, operations=self.operations, slots_of_value=slots_of_value,
            view_of_slot=self.view_of_slot, value_of_slot=[value for _, value in self.slots],
            outside=outside, inputs=inputs, constants=constants,
            fresh=[slot for slot, _ in constants if self._is_changed(slot)],
            remembered=[slot for slot in dict.fromkeys(inputs) if self._is_changed(slot) and self._is_read(slot)],
            outputs=[-1 if s is None else s for s in outputs], differentiable=self.trace.differentiable,
            tangents=[-1 if s is None else s for s in tangents],
            gradients=[-1 if gradients[i] is None else gradients[i] for i in tensor_inputs])
        graph = {"format": "reprise-graph", "version": 1, "name": self.name, "cost_unit": "ns",
                 "values": self.values, "ops": self.graph_ops}
        return Lowered(self.trace, graph, made, [tensor for tensor, _ in self.slots])

    def _is_changed(self, slot: int) -> bool:
        storage = self.trace.tensors[self.slots[slot][0]].storage
        return any(storage in self.trace.calls[i].mutated for i in self.kept)

    def _is_read(self, slot: int) -> bool:
        """Does a call look at it that does not change it itself?"""
        storage = self.trace.tensors[self.slots[slot][0]].storage
        return any(storage == version[0] for i in self.kept for version in self.reads[i]
                   if storage not in self.trace.calls[i].mutated)

    def _find_roots(self) -> dict[int, int]:
        """The tensor that each storage was made as."""
        roots: dict[int, int] = {}
        for tensors in ([t for t in self.trace.inputs + self.trace.tangents if t is not None],
                        [t for t, _ in self.trace.constants]):
            for tensor in tensors:
                roots.setdefault(self.trace.tensors[tensor].storage, tensor)
        self._given = {t for t in self.trace.inputs + self.trace.tangents if t is not None}
        self._given |= {t for t, _ in self.trace.constants}
        for call in self.trace.calls:
            for tensor in call.returned():
                storage = self.trace.tensors[tensor].storage
                if storage in call.created:
                    roots.setdefault(storage, tensor)
        return roots

    def _add_residents(self) -> None:
        for number, storage in enumerate(sorted(self.resident)):
            self.values.append({"name": self._unique(f"resident{number}"), "resident": True,
                                "bytes": self.trace.storages[storage].bytes})
            self.value_of[(storage, 0)] = len(self.values) - 1

    def _not_resident(self, values: list[int]) -> list[int]:
        return [value for value in dict.fromkeys(values) if value >= len(self.resident)]  # residents come first

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else self._unique(f"{name}#{count}")

    def _new_value(self, name: str, bytes_: int, keep: bool = False) -> int:
        value = {"name": self._unique(name), "bytes": bytes_}
        if keep:
            value["keep"] = True
        self.values.append(value)
        return len(self.values) - 1

    # Ties: first runs of random calls stay in order; so do changes of inputs and what reads them.
    def _tie(self, forward: list[Op], backward: list[Op]) -> None:
        self.ties_in: dict[int, list[str]] = defaultdict(list)  # id(op) or 0 for outside → names
        self.ties_out: dict[int, list[str]] = defaultdict(list)
        self._tie_count = 0

        def tie(first: int, second: int) -> None:
            self._tie_count += 1
            name = f"order{self._tie_count}"
            self.ties_out[first].append(name)
            self.ties_in[second].append(name)

        outside = 0
        changes: dict[int, int] = {}  # storage → the op that changed it last
        readers: dict[int, list[Op]] = defaultdict(list)
        last_random: int | None = None
        for op in forward + [None] + backward:
            if op is None:
                if last_random is not None:
                    tie(last_random, outside)
                for changer in dict.fromkeys(changes.values()):
                    tie(changer, outside)
                last_random = outside if last_random is not None else None
                continue
            calls = [self.trace.calls[c] for c in op.calls]
            if any(call.random and call.replays is None for call in calls):
                if last_random is not None:
                    tie(last_random, id(op))
                last_random = id(op)
            read = {v[0] for v in op.reads if v[0] in self.resident}
            for storage in sorted(read):
                if storage in changes:
                    tie(changes[storage], id(op))
            changed = {s for call in calls for s in call.mutated if s in self.resident}
            for storage in sorted(changed):
                for reader in readers[storage]:
                    reader.again = False
                    if reader is not op:
                        tie(id(reader), id(op))
                if storage in changes and storage not in read:
                    tie(changes[storage], id(op))
                changes[storage] = id(op)
            harmless = {self.trace.tensors[call.arguments[p][1]].storage for call in calls for p in call.scratch
                        if call.arguments[p][0] == "t"}
            if changed - harmless:
                op.again = False
            for storage in sorted(read - changed):
                readers[storage].append(op)
        self._tie_gradients(backward, tie)

    def _tie_gradients(self, backward: list[Op], tie) -> None:
        """A gradient that is added to one that is there is let go when it is handed over, and that has to wait for
        what still reads its parameter."""
        maker = {version: op for op in backward for version in op.makes}
        for tensor, gradient, kept in zip(self.trace.inputs, self.trace.gradients, self.grads_kept):
            if kept or gradient is None or tensor is None:
                continue
            storage = self.trace.tensors[gradient].storage
            op = maker.get(self._leaving((storage, self.last_version[storage])))
            parameter = (self.trace.tensors[tensor].storage, 0)
            for reader in backward:
                if op is not None and reader is not op and parameter in reader.reads and reader.anchor < op.anchor:
                    tie(id(reader), id(op))

    def _op_name(self, op: Op) -> tuple[str, str]:
        calls = [self.trace.calls[c] for c in op.calls]
        kinds = "+".join(call.name.removeprefix("aten::") for call in calls)
        module = calls[0].origin.module or calls[0].name.removeprefix("aten::")
        line = calls[0].origin.line
        return (f"{module} backward" if op.backward else module), f"{kinds} at {line}" if line else kinds

    def _add_op(self, op: Op) -> None:
        name, kind = self._op_name(op)
        op.name = self._unique(name)
        entry: dict = {"name": op.name, "kind": kind, "cost": 0, "phase": "backward" if op.backward else "forward"}
        reads = sorted(v for v in op.reads)
        inputs = [self.value_of[self._root_version(v)] for v in reads]
        outputs: list[int] = []
        keep_any = False
        for version in sorted(v for v in op.makes if self._is_value(v)):
            keep = version in self.output_versions or version in self.kept_gradients
            keep_any |= keep
            size = self.trace.storages[version[0]].bytes
            value = self._new_value(f"{op.name}:{len(outputs)}", size, keep)
            self.value_of[version] = value
            outputs.append(value)
        for name in self.ties_out[id(op)]:
            outputs.append(self._new_value(name, 0, keep=True))
            self.value_of[name] = outputs[-1]
        inputs += [self.value_of[name] for name in self.ties_in[id(op)]]
        entry["inputs"] = [self.values[v]["name"] for v in dict.fromkeys(inputs)]
        entry["outputs"] = [self.values[v]["name"] for v in outputs]
        if keep_any or not op.again:
            entry["recomputable"] = False

        takeovers, overwrites = self._takeovers(op)
        if overwrites:
            entry["overwrites"] = overwrites
        calls = [self._add_call(c) for c in op.calls]
        self.graph_ops.append(entry)
        self.operations.append(program.Operation(calls, takeovers, outputs, self._not_resident(inputs)))

    def _root_version(self, version: Version) -> Version:
        return version if self._is_value(version) else (version[0], 0)

    def _takeovers(self, op: Op) -> tuple[list, dict]:
        takeovers, overwrites = [], {}
        inner = set().union(*(self.makes[i] for i in op.calls))
        for i in op.calls:
            for storage in self.trace.calls[i].mutated:
                before = (storage, self.before[i][storage])
                if storage in self.resident or before in inner:
                    continue
                after = self._leaving((storage, before[1] + 1))
                source, target = self.value_of[self._leaving(before)], self.value_of[after]
                root = self._roots_of[storage]
                takeovers.append(program.Takeover(source, self._slot(root, self._leaving(before)),
                                                  self._slot(root, after)))
                if storage not in self.tangents and not self.values[source].get("keep"):
                    overwrites[self.values[target]["name"]] = self.values[source]["name"]
        return takeovers, overwrites

    def _add_outside(self) -> int:
        """What the caller does between forward and backward: takes the outputs, gives their gradients."""
        inputs = [self.value_of[self._root_version(self._leaving(v))] for v in sorted(self.output_versions)]
        inputs += [self.value_of[name] for name in self.ties_in[0]]
        outputs = []
        for number, storage in enumerate(sorted(self.tangents)):
            outputs.append(self._new_value(f"given{number}", self.trace.storages[storage].bytes))
            self.value_of[(storage, 0)] = outputs[-1]
        outputs.append(self._new_value(HELD, 0, keep=True))
        for name in self.ties_out[0]:
            outputs.append(self._new_value(name, 0, keep=True))
            self.value_of[name] = outputs[-1]
        self.graph_ops.append({
            "name": self._unique("outside"), "kind": "the caller, between forward and backward", "cost": 0,
            "phase": "loss", "recomputable": False,
            "inputs": [self.values[v]["name"] for v in dict.fromkeys(inputs)],
            "outputs": [self.values[v]["name"] for v in outputs]})
        self.operations.append(program.Operation([], [], outputs, self._not_resident(inputs)))
        return len(self.operations) - 1

    def _slot_now(self, tensor: int | None, versions: set[Version]) -> int | None:
        if tensor is None:
            return None
        storage = self.trace.tensors[tensor].storage
        version = next(v for v in versions if v[0] == storage)
        return self._slot(tensor, self._leaving(version))

    def _value(self, version: Version) -> int:
        return self.value_of[version] if self._is_value(version) else -1

    def _place(self, tensor: int, version: Version) -> int:
        """Its slot, new or known."""
        key = (tensor, self._value(version))
        if key not in self.slot_ids:
            self.slot_ids[key] = len(self.slots)
            self.slots.append(key)
            self.view_of_slot.append(-1)
        return self.slot_ids[key]

    def _slot(self, tensor: int, version: Version) -> int:
        """Where a tensor of that version lies; with the call that derives it, where it is a view."""
        is_new = (tensor, self._value(version)) not in self.slot_ids
        slot = self._place(tensor, version)
        if is_new and tensor != self._roots_of[version[0]] and tensor not in self._given:
            self.view_of_slot[slot] = self._derive(tensor, version)
        return slot

    def _derive(self, tensor: int, version: Version) -> int:
        source = self.trace.view_source.get(tensor)
        if source is None:
            return self._derive_by_strides(tensor, version)
        call = self.trace.calls[source]
        if "inplace_view" in {tag.name for tag in call.func.tags}:
            return self._derive_by_strides(tensor, version)
        key = (source, self._value(version))
        if key not in self._views:
            arguments = [(kind, self._slot(value, version)) if kind == "t" else (kind, value)
                         for kind, value in call.arguments]
            def place(result):
                return -1 if result is None else self._place(result, version)

            results = [[place(t) for t in result] if isinstance(result, list) else place(result)
                       for result in call.results]
            self._views[key] = self._append_call(call, arguments, results)
            for result in results:
                for slot in result if isinstance(result, list) else [result]:
                    if slot >= 0:
                        self.view_of_slot[slot] = self._views[key]
        return self._views[key]

    def _derive_by_strides(self, tensor: int, version: Version) -> int:
        geometry, root = self.trace.tensors[tensor], self._roots_of[version[0]]
        arguments = [("t", self._slot(root, version)), ("c", list(geometry.size)), ("c", list(geometry.stride)),
                     ("c", geometry.offset)]
        call = Call(torch.ops.aten.as_strided.default, arguments, [], False, self.trace.calls[0].origin)
        return self._append_call(call, arguments, [self._place(tensor, version)])

    def _add_call(self, index: int) -> int:
        call = self.trace.calls[index]
        before = self.before[index]

        def slot(tensor: int) -> int:
            storage = self.trace.tensors[tensor].storage
            current = before.get(storage, 0)
            if storage in call.mutated and storage not in self.resident:
                current += 1
            return self._slot(tensor, self._leaving((storage, current)))

        arguments = []
        for kind, value in call.arguments:
            if kind == "t":
                arguments.append((kind, slot(value)))
            elif kind == "ts":
                arguments.append((kind, [-1 if t is None else slot(t) for t in value]))
            else:
                arguments.append((kind, value))

        def result(tensor: int | None) -> int:
            if tensor is None or self.trace.tensors[tensor].storage not in call.created:
                return -1
            storage = self.trace.tensors[tensor].storage
            version = self._leaving((storage, 0))
            if version not in self.value_of or tensor != self._roots_of[storage]:
                return -1
            return self._slot(tensor, version)

        results = [[result(t) for t in r] if isinstance(r, list) else result(r) for r in call.results]
        self._program_call[index] = self._append_call(call, arguments, results)
        return self._program_call[index]

    def _append_call(self, call: Call, arguments: list, results: list) -> int:
        schema = call.func._schema
        where = " ".join(word for word in (
            f"'{call.origin.module}'" if call.origin.module else "", schema.name,
            "backward" if call.backward else "", f"({call.origin.line})" if call.origin.line else "") if word)
        bumped = [i for i, argument in enumerate(schema.arguments)
                  if argument.alias_info is not None and argument.alias_info.is_write and arguments[i][0] == "t"
                  and self.slots[arguments[i][1]][1] == -1]
        self.program_calls.append(program.Call(
            schema.name, schema.overload_name,
            [program.Constant(value) if kind == "c" else value for kind, value in arguments], results,
            list(call.scratch), list(call.unread), bumped, call.random,
            -1 if call.replays is None else self._program_call[call.replays], call.device, where))
        return len(self.program_calls) - 1
