# SPDX-License-Identifier: Apache-2.0
"""What a plan keeps for the backward pass, what it recomputes, what it holds when: from a graph and a plan alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass

from ._core import Graph
from .errors import RepriseError
from .joined import leaves_forward
from .words import bytes_words, cost_words, count, fact, percent, share

_SHOWN = 8  # entries of a table in the text


@dataclass
class Entry:
    """A forward value that the backward pass needs."""

    value: str
    bytes: int
    module: str  # that made it
    op: str  # what it did: "convolution", "add+relu_"
    line: str  # of the user's code: "model.py:42"; "" where unknown
    times: int  # how often it is computed


@dataclass
class Curve:
    """What a plan holds while each of its computes runs."""

    begins: list[int]  # the cost done before each compute
    bytes: list[int]
    cost: int  # of all computes
    forward_cost: int  # of those before the loss


@dataclass(kw_only=True)
class Report:
    """A plan for a training step and, where one ran, what it took. Bytes are of the device, resident ones included."""

    name: str
    ops: int
    recomputed: int  # ops that run more than once
    again: int  # their runs beyond the first
    plain_bytes: int  # what the step takes without a plan
    predicted_bytes: int
    peak_op: str  # what runs then
    resident_bytes: int  # there when the step begins
    cost: int
    base_cost: int  # without a plan
    cost_unit: str
    overhead: float  # cost beyond the base cost, as a fraction of it
    kept: list[Entry]  # there between forward and backward, and read later; the largest first
    dropped: list[Entry]  # freed and recomputed before a backward op reads them; the largest first
    budget_bytes: int | None = None  # None: the smallest, or unknown
    lower_bound: int | None = None  # on the cost of any plan inside the budget
    status: str | None = None
    measured_bytes: int | None = None  # by the last step that was measured
    most_bytes: int | None = None  # by any
    steps: int = 0  # measured so far
    reserved_bytes: int = 0  # that PyTorch's allocator holds on the device, in use or not; 0 on the CPU
    released_bytes: int = 0  # by the caller between forward and backward
    convolutions_in_parts: int = 0  # convolutions that run on one part of the batch after the other
    norms_in_parts: int = 0  # batch norms that run on parts of the batch at once
    halves_at_once: int = 0  # backwards of convolutions whose two gradients are computed at once
    executor: str | None = None  # "native", "cuda_graph" or "fx"; None: no step ran
    ungraphed: str | None = None  # why no CUDA graphs run steps, where they could have
    graphs_bytes: int = 0  # taken by CUDA graphs at the worst moment
    graphs_reserved_bytes: int = 0  # that the device holds for CUDA graphs
    timeline: list[int | None] | None = None  # measured while each compute of the plan ran; None: not seen

    @property
    def fragmentation(self) -> float | None:
        """The share of what the allocator holds that the last step did not have in use at its worst moment; None where
        that is unknown."""
        if not self.reserved_bytes or self.measured_bytes is None:
            return None
        return max(0.0, 1 - self.measured_bytes / self.reserved_bytes)

    def __str__(self) -> str:
        facts = "\n".join(fact(*line) for line in self.facts())
        return f"{self.name}   {self.in_short()}\n{facts}\n" + "".join(
            f"\n{_table(title, entries)}" for title, entries in self.tables())

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def in_short(self) -> str:
        plain = f"{bytes_words(self.plain_bytes)}, {cost_words(self.base_cost, self.cost_unit)}"
        return f"{count(self.ops, 'op')}; plain: {plain}"

    def facts(self) -> list[tuple[str, str, str]]:
        """Label, amount and remark of each headline number."""
        facts = []
        if self.budget_bytes is not None:
            facts.append(("budget", bytes_words(self.budget_bytes),
                          f"{share(self.budget_bytes, self.plain_bytes)} of the plain step"))
        facts.append(("peak", bytes_words(self.predicted_bytes), f"predicted, while {self.peak_op} runs"))
        if self.measured_bytes is not None:
            facts.append(("measured", bytes_words(self.measured_bytes),
                          f"last of {count(self.steps, 'step')}; {bytes_words(self.most_bytes)} at most"))
        if self.fragmentation is not None:
            facts.append(("reserved", bytes_words(self.reserved_bytes),
                          f"by PyTorch's allocator, {100 * self.fragmentation:.1f} % of it not in use"))
        facts.append(("resident", bytes_words(self.resident_bytes), "of it, there when the step begins"))
        facts.append(("time" if self.cost_unit == "ns" else "cost", cost_words(self.cost, self.cost_unit),
                      self._overhead_words()))
        times = f"of {self.ops:,}, {self.again / max(1, self.recomputed):.1f} times on average"
        if self.executor == "cuda_graph":
            reserved = self.graphs_reserved_bytes
            facts.append(("run by", "CUDA graphs", f"{bytes_words(reserved)} are reserved for them, "
                          f"{share(self.graphs_bytes, reserved)} of it in use at most"))
        elif self.ungraphed is not None:
            facts.append(("run by", "C++", f"no CUDA graphs: {self.ungraphed}"))
        facts.append(("again", count(self.recomputed, "op"), times) if self.recomputed else ("again", "none", ""))
        if self.convolutions_in_parts:
            facts.append(("in parts", count(self.convolutions_in_parts, "op"),
                          "convolutions, for less workspace; last bits may differ"))
        if self.norms_in_parts:
            facts.append(("in parts", count(self.norms_in_parts, "op"),
                          "batch norms on parts of the batch, for less time; last bits may differ"))
        if self.halves_at_once:
            facts.append(("at once", count(self.halves_at_once, "op"),
                          "both gradients of convolutions, for less time"))
        return facts

    def tables(self) -> list[tuple[str, list[Entry]]]:
        return [("kept for the backward pass", self.kept), ("recomputed for the backward pass", self.dropped)]

    def _overhead_words(self) -> str:
        words = percent(self.overhead)
        if self.lower_bound == self.cost:
            return f"{words}; no plan needs less (proven)"
        if self.lower_bound is None or self.lower_bound <= self.base_cost:
            return words
        return f"{words}; no plan needs less than {percent(self.lower_bound / self.base_cost - 1)} (proven)"


def explain(graph: Graph, steps: list[int], /, *, plain: Graph | None = None, resident_bytes: int | None = None,
            **taken) -> Report:
    """`plain`: the graph as it is run without a plan, where that is another. `taken`: the fields of Report that only a
    step that ran can tell."""
    known = json.loads(graph.to_json())
    values, ops = known["values"], known["ops"]
    if not ops or "phase" not in ops[0]:  # every op has one, or none has
        raise RepriseError(f"graph '{known['name']}' needs phases: which ops are forward, which backward")
    if resident_bytes is None:
        resident_bytes = sum(value["bytes"] for value in values if value.get("resident"))
    over = resident_bytes, taken.get("released_bytes", 0)
    held, base = curve(graph, steps, *over), curve(plain or graph, (plain or graph).base_run, *over)
    computes = [step for step in steps if step >= 0]
    runs = Counter(computes)
    kept, dropped = _kept_and_dropped(known, steps)
    facts = {"predicted_bytes": max(held.bytes), **taken}
    return Report(
        name=known["name"] or "graph", ops=len(ops), recomputed=sum(times > 1 for times in runs.values()),
        again=len(computes) - len(runs), plain_bytes=max(base.bytes),
        peak_op=_name_and_kind(ops[computes[held.bytes.index(max(held.bytes))]]), resident_bytes=resident_bytes,
        cost=held.cost, base_cost=base.cost, cost_unit=known.get("cost_unit", "units"),
        overhead=held.cost / base.cost - 1 if base.cost else 0.0,
        kept=_entries(known, kept, runs), dropped=_entries(known, dropped, runs), **facts)


def curve(graph: Graph, steps: list[int], resident_bytes: int, released_bytes: int) -> Curve:
    """Replays the steps, over what is there when they begin and less what the caller lets go after forward."""
    ops = json.loads(graph.to_json())["ops"]
    leaves = leaves_forward(ops, steps)
    found = Curve([], [], 0, 0)
    for i, (step, in_use) in enumerate(zip(steps, graph.replay(steps)["in_use"])):
        if step < 0:
            continue
        if i == leaves:
            found.forward_cost = found.cost
        found.begins.append(found.cost)
        found.bytes.append(resident_bytes + in_use - (released_bytes if i >= leaves else 0))
        found.cost += ops[step]["cost"]
    return found


def _kept_and_dropped(graph: dict, steps: list[int]) -> tuple[set[str], set[str]]:
    """Names of values: which copy of each is there, and who reads it, decides."""
    names, ops = [value["name"] for value in graph["values"]], graph["ops"]
    leaves = leaves_forward(ops, steps)
    there: set[str] = set()
    held: set[str] = set()  # of those there when forward ends, the ones not freed since
    copies: Counter[str] = Counter()
    kept, dropped = set(), set()
    for i, step in enumerate(steps):
        if step < 0:
            there.discard(names[~step])
            held.discard(names[~step])
            continue
        op = ops[step]
        kept |= held.intersection(op["inputs"])
        if op["phase"] == "backward":
            dropped |= {name for name in op["inputs"] if copies[name] > 1}
        if i == leaves:
            held = set(there)
        copies.update(name for name in op["outputs"] if name not in there)
        there.update(op["outputs"])
    return kept, dropped


def _entries(graph: dict, names: set[str], runs: Counter[int]) -> list[Entry]:
    """Of the forward values among `names` that take bytes."""
    sizes = {value["name"]: value["bytes"] for value in graph["values"]}
    entries = []
    for number, op in enumerate(graph["ops"]):
        if op["phase"] != "forward":
            continue
        what, line = _what_and_line(op.get("kind", ""))
        module = re.sub(r"#\d+$", "", op["name"])
        entries += [Entry(name, sizes[name], module, what, line, runs[number])
                    for name in op["outputs"] if name in names and sizes[name]]
    return sorted(entries, key=lambda entry: -entry.bytes)


def _what_and_line(kind: str) -> tuple[str, str]:
    """ "convolution at model.py:42" as its two parts."""
    found = re.fullmatch(r"(.*?) at (.+:\d+)", kind)
    return (found[1], found[2]) if found else (kind, "")


def _name_and_kind(op: dict) -> str:
    kind = op.get("kind", "")
    return op["name"] if kind in op["name"] else f"{op['name']} ({kind})"


def _table(title: str, entries: list[Entry]) -> str:
    if not entries:
        return f"{title}: none\n"
    shown, rest = entries[:_SHOWN], entries[_SHOWN:]
    widths = [max(len(getattr(entry, field)) for entry in shown) for field in ("module", "op", "line")]
    lines = [f"{title}: {count(len(entries), 'value')}, {bytes_words(sum(entry.bytes for entry in entries))}"]
    for entry in shown:
        words = [f"{word:{width}}" for word, width in zip((entry.module, entry.op, entry.line), widths) if width]
        lines.append("   ".join([f"{bytes_words(entry.bytes):>19}", *words, times_words(entry.times)]))
    if rest:
        lines.append(f"{bytes_words(sum(entry.bytes for entry in rest)):>19}   {len(rest):,} more")
    return "\n".join(lines) + "\n"


def times_words(times: int) -> str:
    return "once" if times == 1 else f"{times} times"
