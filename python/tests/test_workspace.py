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


def one_of_two(slower: float, monkeypatch) -> list[tuple[int, bool]]:
    """Convolutions are said to take more workspace, or longer. Returns what is told to run apart."""
    def add_costs(lowered, program, **options):
        costs.add_costs(lowered, program, **options)
        for index, (op, operation) in enumerate(zip(lowered.graph["ops"], lowered.program.operations)):
            if op["kind"].startswith("convolution"):
                lowered.smaller[index] = costs.Smaller(int(op["cost"] * slower), op["workspace"], operation.calls)
                op["workspace"] += MORE

    monkeypatch.setattr(planner, "add_costs", add_costs)
    told: list[tuple[int, bool]] = []
    monkeypatch.setattr(planner._torch, "Program", lambda program: Listening(program, told))
    monkeypatch.setattr(planner._torch, "Schedule", lambda listening, steps: SCHEDULE(listening.program, steps))
    monkeypatch.setattr(costs._torch, "run_alone", lambda listening, *rest: RUN_ALONE(listening.program, *rest))
    return told


PROGRAM, SCHEDULE, RUN_ALONE = planner._torch.Program, planner._torch.Schedule, costs._torch.run_alone


class Listening:
    """A program that notes which calls are to run apart."""

    def __init__(self, program, told: list):
        self.program, self._told = PROGRAM(program), told

    def set_apart(self, call: int, is_apart: bool) -> None:
        self.program.set_apart(call, is_apart)
        self._told.append((call, is_apart))


def trained(model: nn.Module, budget: int | str, **options) -> tuple[nn.Module, list[torch.Tensor]]:
    face, x = reprise.compile(copy.deepcopy(model), budget, **QUICK, **options), torch.ones(2, 8, 32, 32)
    for _ in range(2):
        face.zero_grad()
        face(x).backward()
    return face, [parameter.grad for parameter in face.parameters()]


def plain(model: nn.Module) -> list[torch.Tensor]:
    model(torch.ones(2, 8, 32, 32)).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("budget", ["40%", "min"])
def test_less_workspace_is_taken_where_that_is_cheaper_than_computing_again(budget, monkeypatch):
    model = Net()
    told = one_of_two(1.01, monkeypatch)
    face, gradients = trained(model, budget)
    assert all(torch.equal(a, b) for a, b in zip(gradients, plain(model)))
    assert any(is_apart for _, is_apart in told)
    assert face._reprise_state.facts[0].plan.peak < MORE


def test_what_fits_as_usual_stays_as_it_is(monkeypatch):
    told = one_of_two(1.5, monkeypatch)
    face, _ = trained(Net(), "100%")
    assert not told and face.report().recomputed == 0


def test_algorithms_that_take_too_long_are_not_taken(monkeypatch):
    told = one_of_two(50.0, monkeypatch)
    face, _ = trained(Net(), "95%")
    assert not any(is_apart for _, is_apart in told) and face.report().recomputed


def test_the_fx_executor_runs_nothing_apart(monkeypatch):
    told = one_of_two(1.01, monkeypatch)
    with pytest.raises(reprise.InfeasibleBudget):
        trained(Net(), "40%", executor="fx")
    assert not told
