# SPDX-License-Identifier: Apache-2.0
"""The graphs of a model that is several as one: forwards in their order, backwards in the opposite one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Iterable, TypeVar

from . import _core

T = TypeVar("T")


def joined(parts: list[tuple[_core.Graph, list[int]]]) -> tuple[_core.Graph, list[int]]:
    """One graph with one plan. Parts: a graph, and a plan for it. What flows between them is the caller's."""
    if len(parts) == 1:
        return parts[0]
    graphs = [json.loads(graph.to_json()) for graph, _ in parts]
    whole = graphs[0] | {"name": f"{graphs[0]['name']} and {len(parts) - 1} more", "values": [], "ops": []}
    names: Counter[str] = Counter()

    def unique(name: str) -> str:
        names[name] += 1
        return name if names[name] == 1 else unique(f"{name}#{names[name]}")

    first_value: list[int] = []
    for graph in graphs:
        renamed = {value["name"]: unique(value["name"]) for value in graph["values"]}
        first_value.append(len(whole["values"]))
        whole["values"] += [value | {"name": renamed[value["name"]]} for value in graph["values"]]
        for op in graph["ops"]:
            op["inputs"], op["outputs"] = ([renamed[name] for name in op[side]] for side in ("inputs", "outputs"))
            op["overwrites"] = {renamed[o]: renamed[i] for o, i in op.get("overwrites", {}).items()}
    leave_ops = [leaves_forward(graph["ops"], range(len(graph["ops"]))) for graph in graphs]
    leave_steps = [leaves_forward(graph["ops"], plan) for graph, (_, plan) in zip(graphs, parts)]
    for graph in graphs[:-1]:  # between these runs no loss, but the backward of the next
        for op in graph["ops"]:
            op["phase"] = "backward" if op["phase"] == "loss" else op["phase"]

    numbers = in_turn([[(part, op) for op in range(len(graph["ops"]))] for part, graph in enumerate(graphs)], leave_ops)
    whole["ops"] = [graphs[part]["ops"][op] for part, op in numbers]
    for op in whole["ops"]:
        op["name"] = unique(op["name"])
    number_of = {part_and_op: number for number, part_and_op in enumerate(numbers)}
    steps = in_turn([[number_of[part, step] if step >= 0 else ~(first_value[part] + ~step) for step in plan]
                     for part, (_, plan) in enumerate(parts)], leave_steps)
    return _core.Graph(json.dumps(whole)), steps


def in_turn(parts: list[list[T]], leaves: list[int]) -> list[T]:
    """What comes before `leaves` in each part, then the rests, the last first."""
    forwards = [item for part, leave in zip(parts, leaves) for item in part[:leave]]
    return forwards + [item for part, leave in reversed(list(zip(parts, leaves))) for item in part[leave:]]


def leaves_forward(ops: list[dict], steps: Iterable[int]) -> int:
    """The step that runs the loss, as what is checkpointed may run again before it. Without one, the first of backward;
    without that, the end."""
    phases = ["" if step < 0 else ops[step]["phase"] for step in steps]
    return next((phases.index(phase) for phase in ("loss", "backward") if phase in phases), len(phases))
