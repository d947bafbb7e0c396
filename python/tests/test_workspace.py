# SPDX-License-Identifier: Apache-2.0
"""Convolutions that run in parts, for less workspace, where that is cheaper than computing again. Workspaces here are
made up."""

from __future__ import annotations

import copy
import json
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import reprise
from exactness import QUICK, calls_of, say_at_once
from reprise import call_costs, costs, memory, other_ways, planner
from reprise.bench import Bench
from reprise.capture.tracer import Geometry
from reprise.solving import Search, ask

MORE = 8 << 20  # bytes of workspace that convolutions are said to take, of a batch that is not in parts
X = torch.linspace(-1, 1, 8 * 8 * 32 * 32).view(8, 8, 32, 32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Tanh()) for _ in range(6)])

    def forward(self, x):
        return self.layers(x).square().mean()


def say(times: dict[int, float], monkeypatch, by_the_image: int | None = None, least: int = 0) -> None:
    """By how many parts: how many times as long convolutions take. With less workspace than `least` they stay whole."""
    def add_costs(lowered, program, **options):
        ways = costs.add_costs(lowered, program, **options)
        for index, (op, operation) in enumerate(zip(lowered.graph["ops"], lowered.program.operations)):
            if op["kind"].startswith("convolution"):
                call = next(call for call in operation.calls if is_convolution(lowered, call))
                images = lowered.geometry(lowered.program.calls[call].read()[0]).size[0]
                more = MORE if by_the_image is None else by_the_image * images
                if options["may_run_in_parts"] and more >= least:
                    ways.by_parts[index] = {
                        count: costs.InParts(int(op["cost"] * longer), op["workspace"] + more // count, call)
                        for count, longer in times.items()}
                op["workspace"] += more
        return ways

    monkeypatch.setattr(planner, "add_costs", add_costs)


def is_convolution(lowered, call: int) -> bool:
    return lowered.program.calls[call].op.startswith("aten::convolution")


def trained(model: nn.Module, budget: int | str, **options) -> tuple[nn.Module, list[torch.Tensor]]:
    face = reprise.compile(copy.deepcopy(model), budget, **QUICK, **options)
    for _ in range(2):
        face.zero_grad()
        face(X).backward()
    return face, [parameter.grad for parameter in face.parameters()]


def plain(model: nn.Module) -> list[torch.Tensor]:
    model(X).backward()
    return [parameter.grad for parameter in model.parameters()]


def plan_of(face: nn.Module) -> planner.Plan:
    return face._reprise_state.facts[0].plan


@pytest.mark.parametrize("budget", ["50%", "min"])
def test_parts_are_taken_where_that_is_cheaper_than_computing_again(budget, monkeypatch):
    say({2: 1.01, 4: 1.02}, monkeypatch)
    model = Net()
    face, gradients = trained(model, budget)
    for expected, gradient in zip(plain(model), gradients):
        torch.testing.assert_close(gradient, expected)
    assert plan_of(face).in_parts and plan_of(face).peak < MORE
    assert face.report().overhead > 0
    assert plan_of(face).lower_bound <= plan_of(face).cost
    assert face.report().convolutions_in_parts == len(plan_of(face).in_parts)
    assert "convolutions, for less workspace" in str(face.report())


def parts_of(face: nn.Module) -> list[int]:
    return [parts for _, parts in calls_of(face) if parts > 1]


def test_as_few_parts_are_taken_as_fit(monkeypatch):
    """At the end of backward, when little is kept, there is room for whole batches."""
    say({2: 1.3, 4: 1.7}, monkeypatch)
    face, _ = trained(Net(), "92%")
    step = face._reprise_state.facts[0].step
    assert 0 < len(parts_of(face)) < len(step._by_parts) and set(parts_of(face)) == {2}
    assert plan_of(face).cost > step.graph.base_cost
    tight, _ = trained(Net(), "min")
    assert 4 in parts_of(tight)


def test_more_budget_never_costs_more_and_what_is_proven_holds(monkeypatch):
    """Here two parts are a little faster than one, as timings that scatter may say."""
    say({2: 0.999, 4: 1.5}, monkeypatch)
    face, _ = trained(Net(), "100%")
    step = face._reprise_state.facts[0].step
    search = Search(seconds=None, iterations=2000)
    cheapest = math.inf
    for percent in range(30, 100, 5):
        plan, _ = step.plan_within(step.graph.base_peak * percent // 100, search)
        if plan is not None:
            assert plan.lower_bound <= min(cheapest, plan.cost) and plan.cost <= 1.002 * cheapest, percent
            cheapest = min(cheapest, plan.cost)
    assert cheapest < math.inf


def test_what_is_learned_holds_in_parts_and_not(monkeypatch):
    say({2: 1.01, 4: 1.02}, monkeypatch)
    face, _ = trained(Net(), "50%")
    step, plan = face._reprise_state.facts[0].step, plan_of(face)
    (op, count), *_ = plan.in_parts
    rise, peak = step.rise(op, plan), step.graph.replay(step.graph.base_run)["peak_bytes"]
    step.learn_workspace(op, MORE)
    assert step.rise(op, plan) == rise + MORE
    assert step.graph.replay(step.graph.base_run)["peak_bytes"] > peak


def test_the_largest_batch_is_in_parts(monkeypatch):
    """Workspaces are a mebibyte an image."""
    say({2: 1.01, 4: 1.02}, monkeypatch, by_the_image=MORE // 8)
    limit = memory.in_use(torch.device("cpu")) + 2 * MORE
    assert reprise.max_batch(Net(), X, limit, **QUICK) > 16  # of which workspaces would take all


def test_the_largest_batch_does_not_depend_on_the_example(monkeypatch):
    """Of few images, workspaces are too small for parts."""
    say({2: 1.01, 4: 1.02}, monkeypatch, by_the_image=MORE // 8, least=MORE)
    limit = memory.in_use(torch.device("cpu")) + 2 * MORE
    few, many = (reprise.max_batch(Net(), X[:images], limit, **QUICK) for images in (2, 8))
    assert few == pytest.approx(many, rel=0.1) and few > 16


def test_a_plan_that_was_saved_is_in_parts_again(monkeypatch, tmp_path):
    say({2: 1.01, 4: 1.02}, monkeypatch)
    face, _ = trained(Net(), "60%")
    path = tmp_path / "plan.json"
    path.write_text(face.plan)
    again, _ = trained(Net(), 1 << 40, plan=str(path))
    assert plan_of(face).in_parts and plan_of(again).in_parts
    assert plan_of(again).steps == plan_of(face).steps and plan_of(again).peak <= plan_of(face).peak
    path.write_text(json.dumps({**json.loads(face.plan), "peak_bytes": 1}))
    whole, _ = trained(Net(), 1 << 40, plan=str(path))
    assert not plan_of(whole).in_parts  # it would not help


def test_nothing_is_in_parts_where_all_fits(monkeypatch):
    say({2: 1.5, 4: 2.2}, monkeypatch)
    face, _ = trained(Net(), "100%")
    assert face.report().convolutions_in_parts == 0 and face.report().overhead == 0
    assert "convolutions, for less workspace" not in str(face.report())


def test_parts_that_take_too_long_are_not_taken(monkeypatch):
    say({2: 50, 4: 2500}, monkeypatch)
    face, _ = trained(Net(), "95%")
    assert not plan_of(face).in_parts and face.report().recomputed


class Beside(Net):
    """With a small value that takes long to make, and so has to stay."""

    def __init__(self):
        super().__init__()
        self.small = nn.Linear(64, 64)

    def forward(self, x):
        small = torch.sigmoid(self.small(x[:, :, :8, :8].flatten(2)))
        return super().forward(x) + (small * small.exp()).mean()


def test_the_smallest_is_in_parts_where_that_is_cheaper_at_its_peak(monkeypatch):
    """Whole convolutions take as much as the small value does, which is hardly anything: it would have to go for it."""
    def add_costs(lowered, program, **options):
        ways = said(lowered, program, **options)
        for op in lowered.graph["ops"]:
            op["cost"] = 20_000 if "sigmoid" in op["kind"] or "addmm" in op["kind"] else 1000
        for in_parts in ways.by_parts.values():
            in_parts[4].cost = 1001
        return ways

    say({4: 1}, monkeypatch, by_the_image=3 << 10)
    said = planner.add_costs
    monkeypatch.setattr(planner, "add_costs", add_costs)
    face, _ = trained(Beside(), "min")
    step, plan = face._reprise_state.facts[0].step, plan_of(face)
    whole = ask(step.graph, None, Search(seconds=None, iterations=2000))
    assert plan.peak <= whole["peak_bytes"] and plan.in_parts and plan.cost < 0.9 * whole["cost"]
    assert plan.lower_bound <= plan.cost and plan.status == "feasible"


def test_the_smallest_that_is_told_is_in_parts(monkeypatch):
    say({2: 1.01, 4: 1.02}, monkeypatch)
    smallest, _ = trained(Net(), "min")
    with pytest.raises(reprise.InfeasibleBudget) as raised:
        trained(Net(), "10%")
    assert plan_of(smallest).in_parts
    assert raised.value.smallest < MORE


def test_the_fx_executor_runs_nothing_in_parts(monkeypatch):
    say({2: 1.01, 4: 1.02}, monkeypatch)
    with pytest.raises(reprise.InfeasibleBudget):
        trained(Net(), "40%", executor="fx")


@pytest.mark.parametrize("more, at_once", [(0, 6), (1 << 18, range(1, 6)), (1 << 30, 0)])
def test_both_gradients_of_a_convolution_are_computed_at_once_where_there_is_room(more, at_once, monkeypatch):
    """Below the peak of the plan, which does not change for it."""
    model = Net()
    usual, expected = trained(model, "100%")
    say_at_once(monkeypatch, more)
    other, taken = trained(model, "100%")
    assert all(torch.equal(a, b) for a, b in zip(expected, taken))
    facts = other._reprise_state.facts[0]
    calls = facts.step.lowered.program.calls
    ran = [calls[i.call].op for i in facts.step.schedule(facts.plan).instructions if i.at_once]
    assert set(ran) <= {"aten::convolution_backward"} and plan_of(other).peak == plan_of(usual).peak
    assert usual.report().halves_at_once == 0 and other.report().halves_at_once == len(ran)
    assert len(ran) in at_once if isinstance(at_once, range) else len(ran) == at_once
    assert ("both gradients of convolutions" in str(other.report())) == bool(ran)


class Alone(Bench):
    """Of a convolution of 64 images, 2048 bytes given and as many made, which is said to take `fixed` bytes more, and
    `whole` where it is not in parts."""

    def __init__(self, whole: int, most_bytes: int, fixed: int = 0):
        look = Geometry(0, torch.float32, (64, 8), (8, 1), 0)
        call = SimpleNamespace(op="aten::convolution", device=torch.device("cuda"), read=lambda: [0], made=lambda: [1])
        lowered = SimpleNamespace(program=SimpleNamespace(calls=[call]), geometry=lambda _: look)
        super().__init__(lowered, None, None, most_bytes, may_run_in_parts=True, may_run_at_once=True)
        self.whole, self.fixed, self.ran = whole, fixed, []

    def run(self, number, tensors, times=1, *, parts=1, at_once=False):
        self.ran.append(parts)

    def measured(self, number, tensors, *, parts=1):
        return {"cost": 100 + parts, "workspace": self.fixed + self.whole // parts, "results": ["as they lie"]}


def test_a_convolution_is_measured_in_as_few_parts_as_there_is_room_for():
    bench = Alone(whole=8192, most_bytes=4096 + 2500)
    assert other_ways.convolution_within(bench, 0, []) == {
        "cost": 104, "workspace": 8192, "results": ["as they lie"], "is_estimate": True,
        "parts": [[4, 104, 2048], [8, 108, 1024], [16, 116, 512], [32, 132, 256]]}
    assert bench.ran == [32, 16, 8, 4]


@pytest.mark.parametrize("whole, most_bytes, fixed, ran", [
    (8192, 3 * 4096, 0, []), (2048, 7000, 0, [32, 16, 8, 4, 2]), (1024, 4096 + 3100, 2048, [32, 16, 8, 4, 2])])
def test_a_convolution_for_which_there_is_room_is_measured_whole(whole, most_bytes, fixed, ran):
    bench = Alone(whole, most_bytes, fixed)
    assert other_ways.convolution_within(bench, 0, []) is None and bench.ran == ran


def test_an_estimate_is_measured_once_there_is_room(monkeypatch, fresh_cache):
    """Here forwards of convolutions are said to take more than there is at first."""
    def within(bench, number, tensors):
        if bench.calls[number].op != "aten::convolution":
            return None
        asked.append(bench._most_bytes)
        if bench._most_bytes > 1 << 30:
            return None
        bench.run(number, tensors, parts=2)
        return bench.measured(number, tensors, parts=2) | {"workspace": 1 << 30, "is_estimate": True, "parts": [
            [2, 100, 1 << 10]]}

    asked: list[int] = []
    monkeypatch.setattr(call_costs, "convolution_within", within)
    inside = memory.in_use() + (512 << 20)
    for budget, times, in_parts in ((inside, 1, 6), (inside, 1, 6), (4 << 30, 2, 0), (4 << 30, 2, 0), (inside, 2, 0)):
        plan = plan_of(trained(Net(), budget)[0])
        assert (len(asked), len(plan.in_parts)) == (times, in_parts)
        forwards = [op["workspace"] for op in plan.step.lowered.graph["ops"] if op["kind"].startswith("convolution at")]
        assert all((workspace >= 1 << 30) == (in_parts > 0) for workspace in forwards) and len(forwards) == 6


def test_both_gradients_at_once_are_measured_once_there_is_room(monkeypatch, fresh_cache):
    def measured(bench, number, *others, **how):
        return measure(bench, number, *others, **how) | {"workspace": MORE}

    asked: list[str] = []
    counts: list[int] = []
    measure, has_room = Bench.measured, False
    monkeypatch.setattr(Bench, "measured", measured)
    monkeypatch.setattr(Bench, "fits", lambda _, call, results=1, workspace=0: has_room or workspace < MORE)
    monkeypatch.setattr(call_costs, "more_at_once", lambda bench, number, *_: asked.append(bench.calls[number].op))
    for has_room in (False, True, True):
        trained(Net(), "100%")
        counts.append(asked.count("aten::convolution_backward"))
    assert counts[0] == 0 < counts[1] == counts[2]


LESS = 3 << 20  # bytes that both gradients at once are said to take less than one call


@pytest.mark.parametrize("way", ["planned", "loaded", "fx"])
def test_what_takes_less_at_once_is_planned_with_that_and_always_runs_so(way, monkeypatch, tmp_path, fresh_cache):
    """Eager runs it whole, and so does the fx executor."""
    def measured(bench, number, *others, **how):
        is_backward = bench.calls[number].op == "aten::convolution_backward"
        return measure(bench, number, *others, **how) | ({"workspace": MORE} if is_backward else {})

    def less(bench, number, *_):
        return -LESS if bench.may_run_at_once and bench.calls[number].op == "aten::convolution_backward" else None

    measure = Bench.measured
    monkeypatch.setattr(Bench, "measured", measured)
    monkeypatch.setattr(call_costs, "more_at_once", less)
    face, _ = trained(Net(), "100%", **({"executor": "fx"} if way == "fx" else {}))
    if way == "loaded":
        (tmp_path / "plan.json").write_text(face.plan)
        face, _ = trained(Net(), 1 << 40, plan=str(tmp_path / "plan.json"))
    step, plan = face._reprise_state.facts[0].step, plan_of(face)
    ops, program = step.lowered.graph["ops"], step.lowered.program
    taken = {op["workspace"] for op, operation in zip(ops, program.operations)
             if any(program.calls[call].op == "aten::convolution_backward" for call in operation.calls)}
    ran = [sum(instruction.at_once for instruction in step.schedule(any_plan).instructions)
           for any_plan in (plan, step.plain())]
    if way == "fx":
        assert taken == {MORE} and ran == [0, 0] and step.activation_peak <= plan.peak
    else:
        assert taken == {MORE - LESS} and ran == [6, 6] and step.activation_peak > plan.peak
