# SPDX-License-Identifier: Apache-2.0
"""What was decided for a compiled module's step, and what the step took."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import memory
from ._torch import Instruction
from .errors import RepriseError
from .explain import Report, explain
from .joined import in_turn
from .page import page, write_page

if TYPE_CHECKING:
    from .module import _State
    from .facts import Facts


def report(state: "_State", path: str | os.PathLike | None = None) -> Report:
    """Of the step that ran last; with a path, an HTML page of it as well."""
    if not state.facts:
        raise RepriseError("there is nothing to report yet: run a training step first")
    graph, steps = state.whole
    facts, *others = state.facts
    bound = None if others else facts.plan.lower_bound  # each of several has one, for its own part of the budget
    made = explain(
        graph, steps, plain=state.plain_graph, resident_bytes=facts.resident, released_bytes=facts.released,
        predicted_bytes=facts.predicted,
        budget_bytes=facts.budget, lower_bound=bound, status=None if others else facts.plan.status,
        measured_bytes=facts.measured, steps=facts.steps,
        most_bytes=None if facts.measured is None else max(subgraph.most_taken for subgraph in state.last.ran),
        timeline=_measured([facts, *others]), reserved_bytes=memory.reserved(facts.step.device),
        convolutions_in_parts=sum(len(each.plan.in_parts) for each in state.facts),
        norms_in_parts=sum(len(each.step.fixed_parts) for each in state.facts),
        halves_at_once=sum(len(each.plan.at_once) for each in state.facts),
        executor=state.last.ran[-1].executor,
        ungraphed=state.last.ran[-1].graphs.reason, graphs_bytes=facts.graphs_bytes if facts.is_graphed else 0,
        graphs_reserved_bytes=state.last.graph_memories.reserved(facts.step.device))
    if path is not None:
        write_page(path, page(made, graph, steps, state.plain_graph))
    return made


def _measured(all_facts: list["Facts"]) -> list[int | None] | None:
    """The most in use while each compute of the whole plan ran; None for what the caller runs."""
    levels = [_measured_by_compute(facts) for facts in all_facts]
    if None in levels:
        return None
    computes = [[step for step in facts.plan.steps if step >= 0] for facts in all_facts]
    return in_turn(levels, [steps.index(facts.step.lowered.outside) for steps, facts in zip(computes, all_facts)])


def _measured_by_compute(facts: "Facts") -> list[int | None] | None:
    """The most in use while each compute of the plan ran, as if the last step had been the recorded one.

    None for what the caller runs.
    """
    if facts.timeline is None:
        return None
    steps, schedule = facts.plan.steps, facts.step.schedule(facts.plan)
    most: dict[int, int] = {}
    for instruction, level in zip(schedule.instructions, facts.timeline.levels):
        if instruction.kind == Instruction.Kind.call:  # what else there is takes nothing
            most[instruction.step] = max(most.get(instruction.step, 0), level)
    outside = steps.index(facts.step.lowered.outside)
    started = facts.resident - facts.timeline.resident
    released = facts.released - facts.timeline.released
    return [None if i == outside or i not in most else most[i] + started - (released if i > outside else 0)
            for i, step in enumerate(steps) if step >= 0]
