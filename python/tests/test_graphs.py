# SPDX-License-Identifier: Apache-2.0
"""Which CUDA graphs run a step, by where its inputs lie; with a stand-in for what records them, so without a GPU."""

from __future__ import annotations

import dataclasses
import gc
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import reprise
from exactness import QUICK
from reprise.graphs import _PLACES, GraphMemories, Graphs, _Memory
from reprise.planner import Levels, Plan, TrainingStep


class Recorded:
    """Reads inputs where they lay, or from copies."""

    def __init__(self, copies: list[torch.Tensor | None], may_add: bool):
        self.copies, self.may_add, self.are_parameters_there = copies, may_add, True

    def record(self, tensors: list[torch.Tensor]) -> None:
        pass

    def has_moved(self, tensors: list[torch.Tensor]) -> bool:
        return not self.are_parameters_there

    def are_at_their_sums(self, tensors: list[torch.Tensor]) -> bool:
        return True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64, bias=False)

    def forward(self, x, scale):
        return torch.tanh(self.layer(x) * scale).sum()


class Stage:
    """A captured step, and graphs that are asked for it."""

    def __init__(self):
        face = reprise.compile(Net(), "100%", **QUICK)
        face(torch.randn(512, 64), torch.randn(64)).backward()
        facts, subgraph = face._reprise_state.facts[0], face._reprise_state.last.ran[-1]
        self.step, self.plan, self.recorded = facts.step, facts.plan, []
        self.like = [tuple(self.step.trace.tensors[tensor].size) for tensor in self.step.trace.inputs]
        self.weight = face.layer.weight
        memories = SimpleNamespace(graphed=self.graphed, is_busy=lambda _: False, clean=lambda _: None,
                                   settle=lambda _: None, end=lambda *_: None)
        session = SimpleNamespace(options=SimpleNamespace(executor=None), graph_memories=memories, open=[],
                                  is_several=False)
        self.graphs = Graphs(SimpleNamespace(
            session=session, has_run=True, in_use=lambda _: 0, gradients_stay=subgraph.gradients_stay,
            forget=lambda _: None, begin_anew=lambda: None,
            facts_of=lambda _: SimpleNamespace(learn_recorded=lambda *_: None)), torch.device("cpu"))

    def graphed(self, device, schedule, copies, stay, strides, may_add, most_waiting) -> Recorded:
        self.recorded.append(Recorded(copies, may_add))
        return self.recorded[-1]

    def asked(self, x: torch.Tensor, scale: torch.Tensor, plan: Plan | None = None) -> Recorded | None:
        """What runs a step on these inputs."""
        given = {(512, 64): x, (64, 64): self.weight, (64,): scale}
        tensors = [given[size] for size in self.like]
        self.graphs.pick_copied_inputs(self.step, tensors)
        return self.graphs.graphed_step(plan or self.plan, tensors)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_elsewhere_can_not_be_in_a_graph(stage, monkeypatch):
    assert stage.step.off_device is None
    monkeypatch.setattr(stage.step, "device", torch.device("meta"))
    del stage.step.off_device
    assert "'layer' aten::t" in stage.step.off_device and "runs on cpu" in stage.step.off_device
    assert stage.asked(large(), torch.randn(64)) is None and stage.graphs.reason == stage.step.off_device


def large() -> torch.Tensor:
    return torch.randn(512, 64)


def test_inputs_that_lie_by_turns_in_few_places_are_read_there(stage):
    turns, scale = [large() for _ in range(_PLACES)], torch.randn(64)
    runs = [stage.asked(turns[i % _PLACES], scale) for i in range(3 * _PLACES)]
    assert stage.recorded == runs[:_PLACES] == runs[-_PLACES:]
    assert [copy.shape for copy in stage.recorded[0].copies if copy is not None] == [(64,)]


def test_inputs_that_lie_elsewhere_each_time_are_copied(stage):
    alive = [large() for _ in range(3 * _PLACES)]
    runs = [stage.asked(x, torch.randn(64)) for x in alive]
    assert len(stage.recorded) == _PLACES + 1 and set(runs[_PLACES:]) == {stage.recorded[-1]}
    copies = [copy.shape for copy in stage.recorded[-1].copies if copy is not None]
    assert sorted(copies) == [(64,), (512, 64)]


def test_small_inputs_may_lie_anywhere(stage):
    x = large()
    assert len({stage.asked(x, scale) for scale in [torch.randn(64) for _ in range(9)]}) == 1


def test_parameters_that_are_replaced_are_read_where_they_are_from_the_next_step_on(stage):
    x, scale = large(), torch.randn(64)
    stage.asked(x, scale).are_parameters_there = False
    assert stage.asked(x, scale) is None
    assert stage.asked(x, scale) is stage.asked(x, scale) is stage.recorded[1]
    assert stage.graphs.reason is None


def test_where_there_is_no_memory_for_them_steps_run_as_they_are(monkeypatch):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)])
    face, x = reprise.compile(model, "80%", **QUICK), large()
    face(x).sum().backward()
    subgraph, refused = face._reprise_state.last.ran[-1], []

    def refuse(plan, tensors):
        refused.append(plan.peak)
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(subgraph.graphs, "are_due", lambda _: subgraph.graphs.reason is None)
    monkeypatch.setattr(subgraph.graphs, "graphed_step", refuse)
    for _ in range(2):
        face(x).sum().backward()
    assert refused == sorted(set(refused), reverse=True) and len(refused) > 1
    assert subgraph.graphs.reason == "there is no memory for them"
    assert face._reprise_state.facts[0].plan.peak >= refused[0]  # by a plan as it was


class Wanted:
    """Has steps believe that graphs are to run them, up to the moment when they are recorded."""

    def __init__(self, monkeypatch):
        self.reason = "forward returns an input or a constant"  # they are not, then
        self.refused: list[Plan] = []
        monkeypatch.setattr(Graphs, "are_wanted", property(lambda graphs: graphs.reason is None))
        monkeypatch.setattr(Graphs, "are_due", lambda graphs, _: graphs.are_wanted and graphs._subgraph.has_run)
        monkeypatch.setattr(Graphs, "empty_caches", lambda *_: None)
        monkeypatch.setattr(Graphs, "give_back_workspaces", lambda *_: None)
        monkeypatch.setattr(Graphs, "pick_copied_inputs", lambda *_: None)
        monkeypatch.setattr(Graphs, "graphed_step", lambda graphs, plan, _: self.refuse(graphs, plan))

    def refuse(self, graphs: Graphs, plan: Plan) -> None:
        self.refused.append(plan)
        graphs.turn_off(self.reason)


def classify(budget: int) -> tuple[int, str | None]:
    """The most that three steps take of a model with many classes, whose loss takes much memory; and why there were no
    graphs."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)], nn.Linear(64, 2000))
    face, most = reprise.compile(model, budget, costs="flops", **QUICK), 0
    for _ in range(3):
        model.zero_grad()
        with reprise.memory.measure() as memory:
            nn.functional.cross_entropy(face(torch.randn(256, 64)), torch.randint(2000, (256,))).backward()
        most = max(most, memory.peak)
    return most, face.report().ungraphed


def test_budgets_that_graphs_can_not_meet_are_those_of_steps_as_they_are(monkeypatch):
    """Graphs hold their memory while the caller computes the loss."""
    gc.collect()  # what tests before have left is not to go in between
    plain, _ = classify(1 << 40)
    budgets = [int(share * plain) for share in (0.97, 1.0, 1.1)]
    natively = [classify(budget)[0] for budget in budgets]
    wanted = Wanted(monkeypatch)
    for budget, most in zip(budgets, natively):
        taken, reason = classify(budget)
        assert taken <= max(budget, most) and reason in ("there is no memory for them", wanted.reason)


def test_what_graphs_refuse_is_planned_as_a_step_that_runs_as_it_is(monkeypatch):
    """With more to spare."""
    monkeypatch.setattr(TrainingStep, "margin", lambda _, by_graphs: Fraction(998 if by_graphs else 980, 1000))
    wanted = Wanted(monkeypatch)
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.Tanh())
                            for _ in range(20)])
    face = reprise.compile(model, reprise.memory.in_use() + 4_000_000, loss=nn.functional.mse_loss, costs="flops",
                           **QUICK)
    for _ in range(3):
        face(torch.randn(512, 64), torch.randn(512, 64)).backward()
        facts = face._reprise_state.facts[0]
        assert facts.plan.budget <= facts.step.room_in(facts.budget - facts.resident, by_graphs=False)
    assert len(wanted.refused) == 1 and not facts.step.in_graphs


def test_a_step_that_waits_for_its_backward_is_counted():
    memories, device = GraphMemories(), torch.device("cpu")
    busy = SimpleNamespace(is_busy=True)
    memories._memories[device] = _Memory(busy, set())
    memories.begin(device, 1000)
    assert memories.waiting(device) == 1000
    busy.is_busy = False
    assert memories.waiting(device) == 0


def test_gradients_that_move_are_added_by_autograd(stage):
    x, scale = large(), torch.randn(64)
    first = stage.asked(x, scale)
    first.are_at_their_sums = lambda _: False
    assert first.may_add and not stage.asked(x, scale).may_add
    assert len(stage.recorded) == 2


def test_a_plan_that_is_recorded_again_is_no_other_plan(stage):
    for _ in range(10):
        x, scale = large(), torch.randn(64)
        assert stage.asked(x, scale) is not None
        assert stage.graphs.final_plan(stage.step, None) is None
        stage.graphs.release()


def test_after_many_plans_the_loosest_that_fits_is_stayed_with(stage, monkeypatch):
    x, scale, plans = large(), torch.randn(64), [dataclasses.replace(stage.plan) for _ in range(8)]
    peaks = dict(zip(plans, range(10, 2, -1)))
    monkeypatch.setattr(stage.step, "levels_of", lambda plan: Levels(0, peaks[plan], 0))
    for plan in plans:
        stage.asked(x, scale, plan)
    assert stage.graphs.final_plan(stage.step, 11) is plans[0]
    assert stage.graphs.final_plan(stage.step, 7) is plans[3]
    assert stage.graphs.final_plan(stage.step, 2) is None
    assert stage.graphs.final_plan(stage.step, None) is plans[-1]


def test_a_step_is_reported_after_graphs_were_given_up_for_good():
    face = reprise.compile(Net(), "100%", **QUICK)
    face(torch.randn(512, 64), torch.randn(64)).backward()
    before = face.report()
    face._reprise_state.last.ran[-1].graphs.turn_off("backward keeps its graph")
    assert face.report().most_bytes == before.most_bytes and face.report().ungraphed == "backward keeps its graph"
