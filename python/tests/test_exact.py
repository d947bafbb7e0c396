# SPDX-License-Identifier: Apache-2.0
"""A step inside a budget leaves, bit for bit, what a plain step leaves, and takes what was predicted."""

from __future__ import annotations

import gc

import pytest
import torch

import reprise
from cases import CASES, EVERY, Case
from exactness import Taken, built, compiled, difference, train, twins


def cases():
    for name, case in CASES.items():
        words = name.replace(" ", "-")
        yield pytest.param(name, case.budgets, marks=[pytest.mark.long] if case.long else [], id=words)
        if others := [budget for budget in EVERY if budget not in case.budgets]:
            yield pytest.param(name, others, marks=pytest.mark.long, id=f"{words}-otherwise")


def run(case: Case, budget: int | str) -> tuple[torch.nn.Module, list[Taken]]:
    face = compiled(twins(case)[1], budget)
    return face, train(face, case)


def momentum(case: Case) -> int:
    """Bytes that SGD adds after the first step."""
    return sum(p.numel() * p.element_size() for p in built(case).parameters() if p.requires_grad)


def run_within(case: Case, budget: str) -> tuple[torch.nn.Module, list[Taken]]:
    """Where a share can't be met: within the smallest budget that is said to be."""
    torch._dynamo.reset()
    gc.collect()  # budgets in bytes are of all that is there
    try:
        return run(case, budget)
    except reprise.InfeasibleBudget as error:
        smallest = error.smallest
    gc.collect()
    return run(case, smallest + momentum(case))


@pytest.mark.parametrize("name, budgets", cases())
def test_trains_bit_for_bit_as_plainly_within_its_budgets(name, budgets):
    case = CASES[name]
    model, _ = twins(case)
    expected = train(model, case)
    again = 0
    for budget in budgets:
        face, taken = run_within(case, budget)
        assert (found := difference(expected, taken)) is None, f"{budget}: {found}"

        session, report = face._reprise_state.last, face.report()
        assert session.captures == len(session.subgraphs) == 1
        assert report.budget_bytes is None or report.measured_bytes <= report.budget_bytes, budget
        assert report.measured_bytes == pytest.approx(report.predicted_bytes, rel=0.02), budget
        again += report.recomputed
    assert again or not case.recomputes or "min" not in budgets
