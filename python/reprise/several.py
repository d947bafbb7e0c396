# SPDX-License-Identifier: Apache-2.0
"""How several graphs, whose forwards run before one backward, share a budget.

`ran`, throughout: these graphs in the order of their forwards, each as often as it ran.
"""

from __future__ import annotations

from .budget import Budget
from .chooser import loosest
from .errors import InfeasibleBudget
from .planner import Plan
from .solving import Search
from .subgraph import Subgraph
from .words import bytes_words


class Shares:
    """What each graph gets of a budget for its own plan."""

    def __init__(self, search: Search):
        self._search = search
        self._by_graph: dict[Subgraph, int] | None = None  # bytes; None: the smallest, until all graphs have run once
        self._shared_bytes = 0  # that they were made from

    def of(self, graph: Subgraph) -> int | None:
        """Bytes for its plan; None: the smallest."""
        return None if self._by_graph is None else self._by_graph.get(graph)

    def forget(self) -> None:
        self._by_graph = None

    def divide(self, ran: list[Subgraph], budget: Budget, started: int) -> None:
        """For a step like the one before. One that begins with other memory in use divides anew."""
        left = _left(ran, budget, started)
        is_new = self._by_graph is None or not all(graph in self._by_graph for graph in ran)
        if left is not None and (is_new or not left / 1.05 <= self._shared_bytes <= left):
            self._by_graph, self._shared_bytes = self._divided(ran, left, started), left

    def _divided(self, ran: list[Subgraph], left: int, started: int) -> dict[Subgraph, int]:
        """All are loosened alike from their smallest peaks towards plain, as far as it fits together."""
        sure = ran[0].facts.step.room_in(left)
        plans = {graph: graph.facts.step.plan_within(None, self._search)[0] for graph in ran}
        smallest_together = _together(ran, plans)
        if smallest_together > sure:
            together = started + ran[0].facts.step.budget_for(smallest_together)
            raise InfeasibleBudget(
                f"budget {bytes_words(started + left)} can't be met: the model's {len(ran)} graphs take "
                f"{bytes_words(together)} together at the least ({together} bytes)", together)
        smallest = {graph: plan.peak for graph, plan in plans.items()}

        def attempt(share: float) -> dict[Subgraph, int] | None:
            asked = {g: int(smallest[g] + share * max(0, g.facts.step.graph.base_peak - smallest[g])) for g in ran}
            plans = {g: g.facts.step.plan_within(asked[g], self._search)[0] for g in ran}
            return asked if all(plans.values()) and _together(ran, plans) <= sure else None

        return loosest(attempt) or smallest


def note_together(ran: list[Subgraph], budget: Budget, started: int) -> None:
    """All graphs of a step have run: notes what they were to take together, and within which budget."""
    plans = {graph: graph.facts.plan for graph in ran}
    for graph in ran[:-1]:  # what comes between its forward and its backward is the next graphs', counted there
        if graph is not ran[-1] and not graph.facts.step.knows_outside:
            graph.facts.step.learn_outside(0, 0)
    facts = ran[0].facts  # its forward is the first, its backward the last: it measures the whole step
    left = _left(ran, budget, started)
    facts.predicted = started + _together(ran, plans)
    facts.budget = None if left is None else started + left


def _left(ran: list[Subgraph], budget: Budget, started: int) -> int | None:
    """Bytes for the step, over what is there when it begins; None: the smallest."""
    if budget.bytes is not None:
        return budget.bytes - started
    if budget.share is None:
        return None
    gradients = sum(graph.facts.step.gradient_bytes for graph in ran)
    plain = _together(ran, {graph: graph.facts.step.plain() for graph in ran}) - gradients
    return gradients + int(plain * budget.share)


def _together(graphs: list[Subgraph], plans: dict[Subgraph, Plan]) -> int:
    """The peak of graphs whose forwards run in this order: what earlier ones keep and the gradients that later ones
    have made are there as well."""
    kept = [plans[g].kept for g in graphs]
    gradients = [g.facts.step.gradient_bytes for g in graphs]
    return max(sum(kept[:i]) + plans[g].peak + sum(gradients[i + 1:]) for i, g in enumerate(graphs))
