# SPDX-License-Identifier: Apache-2.0
"""A step inside a budget leaves, bit for bit, what a plain step leaves."""

from __future__ import annotations

import functools
import gc
from dataclasses import dataclass

import pytest
import torch

import reprise
from exactness import Taken, assert_same, built, train, twins
from models import CASES

BUDGETS = ("80%", "60%", "40%", "min")
NAMES = [pytest.param(name, marks=[pytest.mark.long] if case.long else [], id=name.replace(" ", "-"))
         for name, case in CASES.items()]


@dataclass
class Ran:
    taken: list[Taken]
    captures: int
    subgraphs: int
    ops: int  # in the graph
    computed: int  # by the plan
    budget: int | None
    predicted: int
    measured: int | None


@functools.cache
def plainly(name: str) -> list[Taken]:
    model, _ = twins(CASES[name])
    return train(model, CASES[name])


@functools.cache
def within(name: str, budget: int | str) -> Ran:
    case = CASES[name]
    _, model = twins(case)
    torch._dynamo.reset()
    gc.collect()  # budgets in bytes are of all that is there
    compiled = reprise.compile(model, budget, plan_seconds=2.0, plan_iterations=2000)
    taken = train(compiled, case)
    session, facts = compiled._reprise_state.last, compiled._reprise_state.facts
    ops = len(facts.step.lowered.graph["ops"])
    return Ran(taken, session.captures, len(session.subgraphs), ops, sum(step >= 0 for step in facts.plan.steps),
               facts.budget, facts.predicted, facts.measured)


def feasible(name: str, budget: str) -> Ran:
    """Where a share can't be met: by the smallest budget that is said to be."""
    try:
        return within(name, budget)
    except reprise.InfeasibleBudget as error:
        if budget == "min":
            raise
        smallest, why = error.smallest, str(error)
    if smallest is None:
        pytest.skip(why)
    return within(name, smallest + momentum(name))


def momentum(name: str) -> int:
    """Bytes that SGD adds after the first step."""
    return sum(p.numel() * p.element_size() for p in built(CASES[name]).parameters() if p.requires_grad)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", NAMES)
def test_trains_bit_for_bit_as_plainly(name, budget):
    assert_same(plainly(name), feasible(name, budget).taken)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", NAMES)
def test_takes_what_was_predicted_and_no_more_than_the_budget(name, budget):
    ran = feasible(name, budget)
    assert ran.measured is not None, "the third step was not measured"
    assert ran.budget is None or ran.measured <= ran.budget
    assert abs(ran.measured - ran.predicted) <= 0.02 * ran.predicted, f"{ran.measured} for {ran.predicted}"


@pytest.mark.parametrize("name", NAMES)
def test_is_captured_as_one_graph_and_computes_again(name):
    found = [feasible(name, budget) for budget in BUDGETS]
    assert all(ran.captures == ran.subgraphs == 1 for ran in found)
    if CASES[name].recomputes:
        assert any(ran.computed > ran.ops for ran in found)
