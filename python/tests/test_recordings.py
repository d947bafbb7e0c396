# SPDX-License-Identifier: Apache-2.0
"""When reprise.Step records a step, and what is left of a recording that fails; with graphs that are emulated."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from emulated_graphs import Graph, Plan, emulate
from exactness import QUICK
from test_step import batches, by_steps, net, plainly, sgd

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    emulate(monkeypatch)


@pytest.mark.parametrize("settled_at, recorded_at", [(0, 4), (5, 6), (99, 8)])
def test_a_plan_has_to_be_settled_before_a_step_is_recorded(settled_at, recorded_at):
    """After four updates; it is waited for as many more."""
    model, found = net(CPU), []
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    plan = Plan(is_settled=False)
    step.model._reprise_state.facts = [plan]
    for i, (x, target) in enumerate(batches(CPU, 10)):
        plan.is_settled = i > settled_at
        step(x, target)
        found.append(any(shape.recorded for shape in step._shapes.values()))
    assert found.index(True) == recorded_at


@pytest.mark.parametrize("is_another, failures", [(True, 2), (True, 3), (False, 1)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_recording_that_fails_leaves_no_trace(monkeypatch, is_another, failures, accumulate):
    """It is tried again where it was another plan's, but not for ever."""
    left, taken = [failures], []

    def record(graph, work):
        usual(graph, work)
        if left[0]:
            left[0] -= 1
            torch.rand(3)
            if is_another:
                taken[0].model._reprise_state.facts = [Plan()]
            raise RuntimeError("no\nsuch graph")

    usual = Graph.record
    monkeypatch.setattr(Graph, "record", record)
    plain, data = net(CPU), batches(CPU, 40)
    other = copy.deepcopy(plain)
    expected = plainly(plain, sgd(plain), data, accumulate)
    taken.append(reprise.Step(other, F.cross_entropy, sgd(other), accumulate=accumulate, **QUICK))
    assert all(torch.equal(a, b) for a, b in zip(expected, by_steps(taken[0], data)))
    is_told = not is_another or failures == 3
    assert taken[0].reason == ("no" if is_told else None)
    assert any(shape.recorded for shape in taken[0]._shapes.values()) != is_told


class Replacing(nn.Module):
    """Its buffer is another tensor after each call."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return self.inner(x) / self.seen


def test_a_step_that_is_another_at_each_call_is_told_of():
    plain = Replacing()
    other, data = copy.deepcopy(plain), batches(CPU, 24)
    step = reprise.Step(other, F.cross_entropy, sgd(other), **QUICK)
    assert all(torch.equal(a, b) for a, b in zip(plainly(plain, sgd(plain), data), by_steps(step, data)))
    assert step.reason == "tensors of the model or of the optimizer are replaced time and again"
