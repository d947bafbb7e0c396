# SPDX-License-Identifier: Apache-2.0
"""Algorithms that need less workspace, where they are cheaper than computing again. Workspaces here are made up: on a
CPU there is one algorithm, which runs apart or not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import reprise
from exactness import QUICK
from reprise import costs, planner

MORE = 2 << 20  # bytes of workspace that the usual algorithm is said to take


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Tanh()) for _ in range(6)])

    def forward(self, x):
        return self.layers(x).square().mean()


def one_of_two(slower: float, monkeypatch) -> None:
    """Convolutions are said to take more workspace, or longer."""
    def add_costs(lowered, program, **options):
        ways = costs.add_costs(lowered, program, **options)
        for index, (op, operation) in enumerate(zip(lowered.graph["ops"], lowered.program.operations)):
            if op["kind"].startswith("convolution"):
                ways.less[index] = costs.LessWorkspace(int(op["cost"] * slower), op["workspace"], operation.calls)
                op["workspace"] += MORE
        return ways

    monkeypatch.setattr(planner, "add_costs", add_costs)


def trained(model: nn.Module, budget: int | str, **options) -> tuple[nn.Module, list[torch.Tensor]]:
    face, x = reprise.compile(copy.deepcopy(model), budget, **QUICK, **options), torch.ones(2, 8, 32, 32)
    for _ in range(2):
        face.zero_grad()
        face(x).backward()
    return face, [parameter.grad for parameter in face.parameters()]


def plain(model: nn.Module) -> list[torch.Tensor]:
    model(torch.ones(2, 8, 32, 32)).backward()
    return [parameter.grad for parameter in model.parameters()]


def plan_of(face: nn.Module) -> planner.Plan:
    return face._reprise_state.facts[0].plan


@pytest.mark.parametrize("budget", ["40%", "min"])
def test_less_workspace_is_taken_where_that_is_cheaper_than_computing_again(budget, monkeypatch):
    one_of_two(1.01, monkeypatch)
    model = Net()
    face, gradients = trained(model, budget)
    assert all(torch.equal(a, b) for a, b in zip(gradients, plain(model)))
    assert plan_of(face).less and plan_of(face).peak < MORE
    assert face.report().overhead > 0 and face.report().lower_bound is None


def test_convolutions_that_fit_as_usual_stay_as_they_are(monkeypatch):
    """At the end of backward, when little is kept, there is room for them."""
    one_of_two(1.3, monkeypatch)
    face, _ = trained(Net(), "92%")
    step = face._reprise_state.facts[0].step
    assert 0 < len(plan_of(face).less) < len(step._less)
    assert plan_of(face).cost > step.graph.base_cost


def test_nothing_is_taken_where_all_fits(monkeypatch):
    one_of_two(1.5, monkeypatch)
    face, _ = trained(Net(), "100%")
    assert not plan_of(face).less and face.report().overhead == 0


def test_algorithms_that_take_too_long_are_not_taken(monkeypatch):
    one_of_two(50.0, monkeypatch)
    face, _ = trained(Net(), "95%")
    assert not plan_of(face).less and face.report().recomputed


def test_the_fx_executor_runs_nothing_apart(monkeypatch):
    one_of_two(1.01, monkeypatch)
    with pytest.raises(reprise.InfeasibleBudget):
        trained(Net(), "40%", executor="fx")
