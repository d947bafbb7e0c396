# SPDX-License-Identifier: Apache-2.0
"""Plans whose operations run whole or in parts of the batch: which do, and in how many, is part of the search."""

from __future__ import annotations

import json
import math

from . import _core
from .costs import InParts
from .solving import GOOD_ENOUGH, Search, ask

# Of a smallest peak: the most that one in parts may have, to be worth it.
_MUCH_SMALLER = 0.98

OpInParts = tuple[int, int]  # an op, and in how many parts it is to run


class GraphInParts:
    """A graph, and what it is where ops run in parts. Whoever changes it says so by `forget`."""

    def __init__(self, whole: dict, by_parts: dict[int, dict[int, InParts]], gradients: set[str]):
        self._whole = whole
        self._by_parts = by_parts  # by op and how many
        self._gradients = gradients  # names of those that stay
        self._graphs: dict[tuple[str, frozenset[OpInParts], bool], _core.Graph] = {}

    def forget(self) -> None:
        self._graphs.clear()

    def graph(self, kind: str = "bytes", in_parts: frozenset[OpInParts] = frozenset(), *,
              hopeful: bool = False) -> _core.Graph:
        """What a plan of that kind, and with these ops in parts, is made for: for a share, gradients that stay take no
        bytes. `hopeful`: as if they took no longer than in any other way."""
        if (kind, in_parts, hopeful) not in self._graphs:
            text = json.dumps(self._whole)
            if in_parts or kind == "share":
                graph = json.loads(text)
                for op, count in in_parts:
                    ways, usual = self._by_parts[op], graph["ops"][op]["cost"]
                    cost = min(usual, *(way.cost for way in ways.values())) if hopeful else ways[count].cost
                    graph["ops"][op] |= {"cost": cost, "workspace": ways[count].workspace}
                if kind == "share":
                    _free(graph, self._gradients)
                text = json.dumps(graph)
            self._graphs[kind, in_parts, hopeful] = _core.Graph(text)
        return self._graphs[kind, in_parts, hopeful]

    def best(self, kind: str, budget: int | None, search: Search) -> tuple[dict, frozenset[OpInParts]]:
        """A plan of that kind, and which ops run in parts."""
        whole = ask(self.graph(kind), budget, search)
        if not self._by_parts:
            return whole, frozenset()
        if budget is None:
            return self._smallest(kind, whole, search)
        if whole["steps"] is None or whole["cost"] > self.graph().base_cost:
            return self._cheapest(kind, whole, budget, search)
        return whole, frozenset()

    def _smallest(self, kind: str, whole: dict, search: Search) -> tuple[dict, frozenset[OpInParts]]:
        """With parts where that is much smaller; else the cheapest at the peak of the plan without."""
        found, in_parts = self._in_at_most(self._counts()[0], kind, None, search)
        if whole["steps"] is None:
            return found, in_parts
        if found["steps"] is not None and found["peak_bytes"] < _MUCH_SMALLER * whole["peak_bytes"]:
            return found, in_parts
        return self._cheapest(kind, whole, whole["peak_bytes"], search)

    def _cheapest(self, kind: str, whole: dict, budget: int, search: Search) -> tuple[dict, frozenset[OpInParts]]:
        """The plan where ops run in parts that can, and how they do, if that is cheaper, for all that they take longer,
        than `whole`, where none does. What is proven holds for any way to run them, as it is about the least
        workspace."""
        most, *fewer = self._counts()
        least, taken = self._in_at_most(most, kind, budget, search)
        best, in_parts = (least, taken) if _is_cheaper(least, whole) else (whole, frozenset())
        if best["steps"] is None:
            return least, in_parts
        for count in fewer:
            if best["cost"] <= (1 + GOOD_ENOUGH) * (least["lower_bound"] or 0):
                break
            found, taken = self._in_at_most(count, kind, budget, search.briefly(), best["steps"])
            if _is_cheaper(found, best):
                best, in_parts = found, taken
        return best | {"lower_bound": least["lower_bound"], "status": "feasible"}, in_parts

    def _counts(self) -> list[int]:
        """In how many parts ops can run, the most first."""
        return sorted({count for ways in self._by_parts.values() for count in ways}, reverse=True)

    def _in_at_most(self, most: int, kind: str, budget: int | None, search: Search,
                    start: list[int] | None = None) -> tuple[dict, frozenset[OpInParts]]:
        """A plan for all such ops in so many parts, or as many as they can. Those that fit whole then stay so; others
        run in the cheapest way that fits."""
        all_ops = self._all_in_at_most(most)
        found = ask(self.graph(kind, all_ops, hopeful=True), budget, search, start)
        if found["steps"] is None:
            return found, frozenset()
        in_parts = self._as_fits(found["steps"], found["peak_bytes"] if budget is None else budget, kind, all_ops)
        replayed = self.graph(kind, in_parts).replay(found["steps"])
        return found | {"cost": replayed["cost"], "peak_bytes": replayed["peak_bytes"], "status": "feasible"}, in_parts

    def _all_in_at_most(self, most: float) -> frozenset[OpInParts]:
        return frozenset((op, max((count for count in ways if count <= most), default=min(ways)))
                         for op, ways in self._by_parts.items())

    def as_fits(self, steps: list[int], peak: int) -> frozenset[OpInParts]:
        """Ops of a plan that has to run some in parts to stay within that peak."""
        return self._as_fits(steps, peak, "bytes", self._all_in_at_most(math.inf))

    def _as_fits(self, steps: list[int], peak: int, kind: str,
                 all_ops: frozenset[OpInParts]) -> frozenset[OpInParts]:
        """Those that do not fit whole but do in parts, each in the cheapest way."""
        highest, taken = highest_by_op(self.graph(kind, all_ops), steps), set()
        for op, count in all_ops:
            ways = self._by_parts[op]
            room = peak - highest[op] + ways[count].workspace
            fitting = [other for other, way in ways.items() if way.workspace <= room]
            if fitting and self._whole["ops"][op]["workspace"] > room:
                taken.add((op, min(fitting, key=lambda other: ways[other].cost)))
        return frozenset(taken)


def _is_cheaper(found: dict, answer: dict) -> bool:
    if found["steps"] is None or answer["steps"] is None:
        return found["steps"] is not None
    return found["cost"] < answer["cost"]


def highest_by_op(graph: _core.Graph, steps: list[int]) -> dict[int, int]:
    """By op: the most bytes in use while it runs."""
    highest: dict[int, int] = {}
    for step, level in zip(steps, graph.replay(steps)["in_use"]):
        if step >= 0:
            highest[step] = max(highest.get(step, 0), level)
    return highest


def _free(graph: dict, names: set[str]) -> None:
    """Takes the bytes of values away."""
    for value in graph["values"]:
        if value["name"] in names:
            value["bytes"] = 0
    for op in graph["ops"]:
        op["overwrites"] = {o: i for o, i in op.get("overwrites", {}).items() if not {o, i} & names}
