# SPDX-License-Identifier: Apache-2.0
"""Which plan a captured graph runs by, under the budget that it was given."""

from __future__ import annotations

import logging
from fractions import Fraction
from typing import TYPE_CHECKING, Callable, TypeVar

from . import memory
from .budget import Budget
from .errors import InfeasibleBudget, PlanMismatch
from .planner import Plan, TrainingStep
from .solving import Search
from .words import bytes_words

if TYPE_CHECKING:
    from .subgraph import Subgraph

log = logging.getLogger("reprise")
T = TypeVar("T")

# The share of a budget that the first step leaves free, where it can, if CUDA graphs follow: nobody has seen yet what
# the allocator adds to it.
_SPARED = Fraction(3, 100)
# What a plan may take after the device ran out of memory, of what the one before was to take.
_TIGHTER = 0.85


class Chooser:
    """Chooses a plan for each step of one captured graph."""

    def __init__(self, subgraph: "Subgraph"):
        self._subgraph, self._session = subgraph, subgraph.session
        self._from_file: Plan | None = None
        self.at_most: int | None = None  # bytes for a plan, where the device had less than the budget
        self.forwards = 1  # that are expected before a backward
        self._several: tuple[int, int, Plan] | None = None  # what was planned for, where there are more

    def plan_as(self, other: "Chooser") -> None:
        """By the plan file that the other has read."""
        self._from_file = other._from_file

    def choose(self, step: TrainingStep, started: int, *, by_graphs: bool = False, for_once: bool = False) -> Plan:
        """For a step that begins with `started` bytes in use. `by_graphs`: CUDA graphs are to run it; `for_once`: others
        follow by another plan, so there is no need to look for long."""
        budget, search = self._session.budget(step.device), self._session.options.search
        soon, spared = (search.briefly(), _SPARED) if for_once else (search, 0)
        if self.at_most is not None:
            plan, answer = step.plan_within(self.at_most, search)
            if plan is not None:
                return plan
            raise self._infeasible(step, budget, started, answer, by_graphs)
        if self._session.options.plan_file is not None:
            return self._loaded(step)
        if budget.is_smallest:
            plan, answer = step.plan_smallest(search)
        elif self._session.is_several:
            share = self._session.share(self._subgraph, started)
            plan, answer = step.plan_within(share, search.briefly())
        elif budget.share is not None:
            plan, answer = step.plan_share(budget.share * (1 - spared), soon, by_graphs)
        else:
            within = budget.bytes - int(spared * (budget.bytes - started))
            plan, answer = self._choose_within(step, within, started, soon, by_graphs)
        if plan is None and for_once:
            return self.choose(step, started, by_graphs=by_graphs)
        if plan is None:
            plan = self._less_carefully(step, started, by_graphs)
        if plan is None:
            raise self._infeasible(step, budget, started, answer, by_graphs)
        return plan

    def _less_carefully(self, step: TrainingStep, started: int, by_graphs: bool) -> Plan | None:
        """Where nothing fits because the loss might need a lot: as if it needed little."""
        if not step.assume_little():
            return None
        try:
            return self.choose(step, started, by_graphs=by_graphs)
        except InfeasibleBudget:
            return None

    def _choose_within(self, step: TrainingStep, budget: int, started: int, search: Search,
                       by_graphs: bool) -> tuple[Plan | None, dict]:
        """Where forwards of this step came before, what they keep is in use."""
        session = self._session
        if session.open and self._subgraph is not session.open[0]:
            session.become_several()
            return step.plan_within(None, search.briefly())
        before = session.open.count(self._subgraph)
        if self.forwards > 1 and before < self.forwards:
            left = step.room_in(budget - (session.started if before else started), by_graphs)
            return self._choose_one_of_several(step, left)
        left = step.room_in(budget - started, by_graphs) - before * step.tangent_bytes
        plan, answer = self._choose_one(step, left, search, by_graphs)
        if plan is not None or not before:
            return plan, answer
        log.warning("%d forwards before a backward do not fit: what the others keep is let go and computed again",
                    before + 1)
        self.forwards = before + 1
        for begun in self._subgraph.begun:
            begun.shed()
        return self._choose_one_of_several(step, step.room_in(budget - session.started, by_graphs))

    def _choose_one_of_several(self, step: TrainingStep, left: int) -> tuple[Plan | None, dict]:
        """What the others keep is there as well, and so are the gradients of their outputs."""
        def needed(plan: Plan) -> int:
            return plan.peak + (self.forwards - 1) * (plan.kept + step.tangent_bytes)

        if self._several is not None:
            forwards, planned_left, plan = self._several
            if plan.step is step and forwards == self.forwards and needed(plan) <= left <= 1.05 * planned_left:
                return plan, {}
        search = self._session.options.search.briefly()
        smallest, answer = step.plan_within(None, search)
        low, high = smallest.peak, min(left, step.graph.base_peak)

        def attempt(share: float) -> Plan | None:
            plan = step.plan_within(int(low + share * (high - low)), search)[0]
            return plan if plan is not None and needed(plan) <= left else None

        plan = loosest(attempt) or (smallest if needed(smallest) <= left else None)
        if plan is None:
            return None, answer | {"smallest_peak_bytes": needed(smallest), "binding_op": None}
        self._several = (self.forwards, left, plan)
        return plan, answer

    def _choose_one(self, step: TrainingStep, left: int, search: Search, by_graphs: bool) -> tuple[Plan | None, dict]:
        facts = self._subgraph.facts
        is_alike = facts is not None and facts.step is step and facts.is_graphed == by_graphs
        current = facts.plan if is_alike else None
        if current is not None and current.peak <= left and not self._too_careful(current, left):
            return current, {}
        return step.plan_within(left, search) if left > 0 else (None, {})

    def choose_again(self, step: TrainingStep, by_graphs: bool) -> Plan:
        """For a step whose values were shed. The gradients of its outputs are there from the start."""
        budget, search = self._session.budget(step.device), self._session.options.search.briefly()
        there = memory.in_use(step.device) + self._subgraph.uncounted
        left = step.room_in(budget.bytes - there, by_graphs)
        plan, _ = step.plan_within(left + step.tangent_bytes, search)
        if plan is not None and plan.levels.forward <= left:
            return plan
        plan, answer = step.plan_within(left, search)
        if plan is None:
            raise self._infeasible(step, budget, there, answer, by_graphs)
        return plan

    def _loaded(self, step: TrainingStep) -> Plan:
        """The plan file's. A step with another backward, or with gradients there, is planned within the same peak."""
        path = self._session.options.plan_file
        if self._from_file is not None and self._from_file.step is not step:
            search = self._session.options.search
            return step.plan_within(self._from_file.peak, search)[0] or step.plan_within(None, search)[0]
        if self._from_file is None:
            try:
                with open(path, encoding="utf-8") as file:
                    self._from_file = step.plan_from(file.read(), path)
            except OSError as error:
                raise PlanMismatch(f"{path}: can't be read: {error.strerror}") from None
        return self._from_file

    @staticmethod
    def _too_careful(plan: Plan, left: int) -> bool:
        """Was it made for much less than there is now, and does it pay for that?"""
        return plan.cost > plan.step.graph.base_cost and plan.budget is not None and left > plan.budget * 1.05

    def _infeasible(self, step: TrainingStep, budget: Budget, started: int, answer: dict,
                    by_graphs: bool) -> InfeasibleBudget:
        smallest = answer.get("smallest_peak_bytes")
        reached = None if smallest is None else started + step.budget_for(smallest, by_graphs)
        if self.at_most is not None:
            hint = "" if smallest is None else f"; the smallest plan found takes {bytes_words(smallest)}"
            return InfeasibleBudget("the device ran out of memory, and no plan of "
                                    f"{bytes_words(self.at_most)} was found{hint}", reached)
        there = f"{bytes_words(started)} are in use before the step begins"
        if budget.bytes is not None and budget.bytes <= started:
            return InfeasibleBudget(f"budget {bytes_words(budget.bytes)} can't be met: {there} "
                                    "(parameters, buffers, inputs, optimizer state)")
        binding = answer.get("binding_op")
        what = f"; '{binding}' needs {bytes_words(answer['smallest_peak_bound'])} while it runs" if binding else ""
        if budget.bytes is not None:
            hint = "" if reached is None else f"; the smallest plan found takes {bytes_words(reached)} ({reached} bytes)"
            return InfeasibleBudget(f"budget {bytes_words(budget.bytes)} can't be met: {there}{what}{hint}", reached)
        base = step.activation_peak
        share = None if smallest is None else float(100 * step.share_for(smallest, by_graphs))
        hint = "" if share is None else f"; the smallest plan found takes {share:.1f}%"
        return InfeasibleBudget(f"budget {budget.text} of {bytes_words(base)} activations can't be met{what}{hint}",
                                None if reached is None else reached + step.gradient_bytes)

    def tighten(self, plan: Plan) -> None:
        """After the device ran out of memory."""
        peak = min(plan.peak, self.at_most or plan.peak)
        self.at_most = int(peak * _TIGHTER)
        log.warning("out of memory at a planned peak of %s: planning again for %s", bytes_words(peak),
                    bytes_words(self.at_most))


def loosest(attempt: Callable[[float], T | None]) -> T | None:
    """Of the shares from 0 to 1, what the largest gives that gives anything, to within a thirtieth."""
    found, low, high = attempt(1.0), 0.0, 1.0
    if found is not None:
        return found
    for _ in range(5):
        middle = (low + high) / 2
        better = attempt(middle)
        found, low, high = (found, low, middle) if better is None else (better, middle, high)
    return found
