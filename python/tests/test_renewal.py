# SPDX-License-Identifier: Apache-2.0
"""Batch norm again by its statistics. A CPU has no kernel that does so: here it has one that is made up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import reprise
from cases import CASES, Case, tensors
from exactness import QUICK, calls_of, difference, train, twins
from models import Normalized
from reprise import other_ways
from reprise.bench import Bench

FIRST = 1000  # ns
EPSILON = 1e-5  # of all batch norms here
NETWORKS = ["resnet", "densenet", "resnet channels last", "mobilenet"]


class Normalizing:
    """A kernel for the CPU. `off`: by how much its results are."""

    def __init__(self):
        self.runs, self.off = 0, 0.0
        self._library = torch.library.Library("reprise", "IMPL")
        self._library.impl("normalize", self._normalize, "CPU")

    def _normalize(self, x, weight, bias, mean, scale, addend, relu, folded):
        self.runs += 1
        out, own_mean, own_scale = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, EPSILON)
        assert torch.equal(own_mean, mean) and torch.equal(own_scale, scale)
        if addend is not None:
            out.add_(addend)
        return (out.relu_() if relu else out).add_(self.off)

    def end(self) -> None:
        self._library._destroy()


@pytest.fixture
def normalizing(monkeypatch, fresh_cache):
    kernel = Normalizing()
    monkeypatch.setattr(other_ways, "_MANY", 1)  # numbers are enough here
    yield kernel
    kernel.end()


@pytest.fixture
def cost(monkeypatch):
    """Sets what the kernel is said to cost, batch norm costing FIRST."""
    measure = Bench.measured

    def is_said_to_be(nanoseconds: int) -> None:
        told = {"aten::native_batch_norm": {"cost": FIRST}, "reprise::normalize": {"cost": nanoseconds}}

        def measured(bench, number, *others):
            return measure(bench, number, *others) | told.get(bench.calls[number].op, {})

        monkeypatch.setattr(Bench, "measured", measured)

    is_said_to_be(1)
    return is_said_to_be


def renewed(face: nn.Module) -> int:
    """How often, in a step."""
    return sum(op == "reprise::normalize" for op, _ in calls_of(face))


@pytest.mark.parametrize("executor, budget", [("native", "min"), ("native", "60%"), ("fx", "min")])
@pytest.mark.parametrize("name", NETWORKS)
def test_trains_bit_for_bit_as_plainly(name, executor, budget, normalizing, cost):
    case = CASES[name]
    plain, other = twins(case)
    expected = train(plain, case)
    compiled = reprise.compile(other, budget, executor=executor, **QUICK)
    taken = train(compiled, case)
    assert (found := difference(expected, taken)) is None, found
    normalizing.runs = 0
    train(compiled, case, 1)
    assert normalizing.runs == renewed(compiled) > 0


def stepped(budget: int | str = "min") -> nn.Module:
    torch.manual_seed(0)
    face = reprise.compile(Normalized(), budget, **QUICK)
    face(torch.randn(4, 4, 16, 16)).backward()
    return face


def test_what_makes_other_bits_is_not_used(normalizing, cost):
    normalizing.off = 1e-6
    assert renewed(stepped()) == 0


def test_what_costs_as_much_is_not_used(normalizing, cost):
    cost(FIRST)
    assert renewed(stepped()) == 0


def test_few_numbers_prove_nothing(normalizing, cost, monkeypatch):
    monkeypatch.setattr(other_ways, "_MANY", 10**9)
    assert renewed(stepped()) == 0


class Changed(nn.Module):
    """Of the first, the mean is changed once it is there, and read."""

    def __init__(self):
        super().__init__()
        self.last, self.layers = nn.Conv2d(4, 4, 3, padding=1), Normalized()

    def forward(self, x):
        y, mean, _ = torch.native_batch_norm(torch.tanh(x), None, None, None, None, True, 0.1, 1e-5)
        mean.mul_(2)
        y = self.last(torch.tanh(y))
        return self.layers(y) + (self.last(torch.tanh(y)) * mean.view(1, 4, 1, 1)).mean()


class Expanded(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layers = nn.BatchNorm2d(4, affine=False), Normalized()

    def forward(self, x):
        return self.layers(self.norm(x[:, :1].expand(-1, 4, -1, -1)))


class Instances(nn.Module):
    """Their running statistics are made within the step, and are no input."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Conv2d(4, 4, 3, padding=1),
                                                    nn.InstanceNorm2d(4, track_running_stats=True)) for _ in range(4)])

    def forward(self, x):
        return self.layers(x).square().mean()


class Followed(nn.Module):
    """By what a renewal does as well, and what it does not."""

    TAILS = {"relu": ["relu_"], "add": ["add_"], "add, relu": ["add_", "relu_"],  # all of what follows
             "add, add": ["add_"], "twice": [], "broadcast": [], "number": [], "scaled": []}

    def __init__(self, how: str):
        super().__init__()
        self.how, self.norm, self.layers = how, nn.BatchNorm2d(4), Normalized()

    def forward(self, x):
        x = torch.tanh(x)
        y = self.norm(x)
        match self.how:
            case "relu": y = y.relu_()
            case "add": y = y.add_(x)
            case "add, relu": y = y.add_(x).relu_()
            case "add, add": y = y.add_(x).add_(x)
            case "twice": y = y.add_(y)
            case "broadcast": y = y.add_(x[:, :1])
            case "number": y = y.add_(1.0)
            case "scaled": y = y.add_(x, alpha=2)
        return self.layers(y)


@pytest.mark.parametrize("how", Followed.TAILS)
def test_what_follows_is_done_as_well_where_that_is_known(how, normalizing, cost):
    case = Case(lambda: Followed(how), tensors(4, 4, 16, 16), lambda out: out)
    plain, other = twins(case)
    compiled = reprise.compile(other, "min", **QUICK)
    assert (found := difference(train(plain, case), train(compiled, case))) is None, found
    calls = compiled._reprise_state.facts[0].step.lowered.program.calls
    norm = next(call for call in calls if call.op == "aten::native_batch_norm")
    assert [calls[number].op.removeprefix("aten::") for number in norm.tail] == Followed.TAILS[how]
    assert renewed(compiled) > 0


@pytest.mark.parametrize("model", [Changed, Expanded, Instances])
@pytest.mark.parametrize("executor", ["native", "fx"])
def test_what_is_unusual_trains_as_plainly(model, executor, normalizing, cost):
    case = Case(model, tensors(4, 4, 16, 16), lambda out: out)
    plain, other = twins(case)
    compiled = reprise.compile(other, "min", executor=executor, **QUICK)
    assert (found := difference(train(plain, case), train(compiled, case))) is None, found


def test_where_memory_was_short_it_is_looked_at_again(normalizing, cost, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Bench, "fits", lambda _, call, results=1, workspace=0: results < 3)
        assert renewed(stepped()) == 0
    assert renewed(stepped()) > 0


def test_an_op_costs_what_it_takes_to_run_it_again(normalizing, cost):
    """What first runs take beyond that is paid for once."""
    step = stepped()._reprise_state.facts[0].step
    ops, calls = step.lowered.graph["ops"], step.lowered.program.calls
    alone = [op["cost"] for op, operation in zip(ops, step.lowered.program.operations)
             if [calls[number].op for number in operation.calls] == ["aten::native_batch_norm"]]
    assert alone == [1] * 6 and ops[step.lowered.outside]["cost"] == 6 * (FIRST - 1)
