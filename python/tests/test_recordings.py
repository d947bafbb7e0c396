# SPDX-License-Identifier: Apache-2.0
"""When reprise.Step records a step, and what is left of a recording that fails; with graphs that are emulated."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from emulated_graphs import EmulatedFacts, Graph, emulated
from exactness import QUICK
from steps import Scaling, batches, by_steps, compare, net, plainly, recordings, sgd

CPU = torch.device("cpu")


@pytest.mark.parametrize("settled_at, recorded_at", [(0, 4), (5, 6), (99, 8)])
def test_a_plan_has_to_be_settled_before_a_step_is_recorded(settled_at, recorded_at):
    """After four updates; it is waited for as many more."""
    model, found = net(CPU), []
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    facts = EmulatedFacts(is_settled=False)
    step.model._reprise_state.facts = [facts]
    for i, (x, target) in enumerate(batches(CPU, 10)):
        facts.is_settled = i > settled_at
        step(x, target)
        found.append(bool(recordings(step)))
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
                taken[0].model._reprise_state.facts = [EmulatedFacts()]
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
    assert bool(recordings(taken[0])) != is_told


class Replacing(nn.Module):
    """Its buffer, or attribute, is another tensor after each call."""

    def __init__(self, is_buffer: bool):
        super().__init__()
        self.inner = nn.Linear(32, 32)
        if is_buffer:
            self.register_buffer("seen", torch.zeros(()))
        else:
            self.seen = torch.zeros(())

    def forward(self, x):
        self.seen = self.seen + 1
        return self.inner(x) / self.seen


@pytest.mark.parametrize("is_buffer", [True, False])
def test_a_step_that_is_another_at_each_call_is_told_of(is_buffer):
    step = compare(CPU, batches(CPU, 24), is_recorded=False, network=lambda _: Replacing(is_buffer))
    assert step.reason == "tensors that a step reads are others from call to call"


class Leaving(nn.Module):
    """Leaves an activation in an attribute."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x):
        self.last = self.inner(x)
        return self.last * self.last.mean()


def test_activations_in_attributes_are_no_other_step():
    step = compare(CPU, batches(CPU, 24), network=lambda _: Leaving())
    assert sum(recorded.replays for recorded in recordings(step)) == 20


@pytest.mark.parametrize("rows, accumulate", [(lambda i: 64, 1), (lambda i: 32 + 32 * (i % 2), 1), (lambda i: 64, 2)])
def test_activations_in_attributes_are_those_of_the_last_call(rows, accumulate):
    """Whichever of several recordings ran."""
    seen: dict[nn.Module, list] = {}

    def after(model, update):
        return lambda optimizer, i: seen.setdefault(model, []).append(model.last.detach().clone())

    step = compare(CPU, batches(CPU, 30, rows), accumulate=accumulate, after=after, network=lambda _: Leaving())
    assert len(recordings(step)) == (1 if rows(0) == rows(1) and accumulate == 1 else 2)
    expected, taken = seen.values()
    assert len(taken) == 30 and all(torch.equal(a, b) for a, b in zip(expected, taken))


class Tracking(nn.Module):
    """Keeps its state where its caller gives it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x, state):
        state.mul_(0.5).add_(x.mean(0))
        return self.inner(x + state.clone())


def test_an_argument_that_is_changed_in_place_is_told_of():
    plain = Tracking()
    other = copy.deepcopy(plain)
    update, expected, taken = sgd(plain), [], []
    state, others = torch.zeros(32), torch.zeros(32)
    step = reprise.Step(other, F.cross_entropy, sgd(other), **QUICK)
    for x, target in batches(CPU, 20):
        update.zero_grad()
        loss = F.cross_entropy(plain(x, state), target)
        loss.backward()
        update.step()
        expected.append(loss.detach())
        taken.append(step(x, others, target))
    assert all(torch.equal(a, b) for a, b in zip(expected, taken)) and torch.equal(state, others)
    assert step.reason == "the step changes an argument in place"


@pytest.mark.parametrize("changes", ["shapes", "numbers", "tensors", "nothing"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_that_is_never_recorded_is_told_of(changes, accumulate):
    """Three shapes in turn, where there may be two, and three changes are waited for: 8 updates each make 40."""
    model = Scaling(scale=torch.ones(()))
    step = reprise.Step(model, F.cross_entropy, sgd(model), accumulate=accumulate, shapes=2, **QUICK)
    found, kept = [], []
    for i, (x, target) in enumerate(batches(CPU, 42 * accumulate, lambda i: 8 + (changes == "shapes") * (i % 3))):
        step(x, target, by=1 + i / 10 if changes == "numbers" else 1.0)
        if changes == "tensors":
            kept.append(model.scale)
            model.scale = torch.ones(())
        found.append(step.reason)
    off = None if changes == "nothing" else 40 * accumulate
    assert next((i for i, reason in enumerate(found) if reason is not None), None) == off
    assert found[-1] in (None, "inputs have more than 2 shapes, or numbers or tensors change from call to call")
    assert off is None or all(shape.given is None for shape in step._shapes.values())


def test_rare_shapes_leave_recordings_of_others_alone():
    model = net(CPU)
    step = reprise.Step(model, F.cross_entropy, sgd(model), shapes=2, **QUICK)
    for x, target in batches(CPU, 160, lambda i: 8 + (i if i % 2 else 0)):
        step(x, target)
    assert step.reason is None and recordings(step)


@pytest.mark.parametrize("shapes, are_recorded", [(2, False), (3, True)])
def test_as_many_shapes_as_asked_for_keep_their_graphs(shapes, are_recorded):
    model = net(CPU)
    step = reprise.Step(model, F.cross_entropy, sgd(model), shapes=shapes, **QUICK)
    for x, target in batches(CPU, 24, lambda i: 8 + i % 3):
        step(x, target)
    assert len(step._shapes) == shapes
    assert all(bool(shape.recorded) == are_recorded for shape in step._shapes.values())


def test_gradients_are_left_alone_until_a_step_begins():
    model = net(CPU)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    step.optimizer.load_state_dict(step.optimizer.state_dict())
    assert all(parameter.grad.eq(1).all() for parameter in model.parameters())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_python_that_runs_another_step_from_call_to_call_is_told_of(accumulate):
    """Which nothing that is looked at shows: by random numbers of the host's, for one."""
    model, several = net(CPU), [[EmulatedFacts()], [EmulatedFacts()]]
    step, found = reprise.Step(model, F.cross_entropy, sgd(model), accumulate=accumulate, **QUICK), []
    for i, (x, target) in enumerate(batches(CPU, 20 * accumulate)):
        step.model._reprise_state.facts = several[i // accumulate % 2]
        step(x, target)
        found.append(bool(recordings(step)))
    assert not any(found) and step.reason == "Python runs another step from call to call"


def test_arguments_of_other_layouts_are_no_graphs_matter():
    model = net(CPU)
    step = reprise.Step(model, lambda out, target: F.cross_entropy(out, target.to_dense()), sgd(model), **QUICK)
    for x, target in batches(CPU, 6):
        step(x, target.float().to_sparse().long())
    assert step.reason == "an argument is of layout torch.sparse_coo"


class Remembering(nn.Module):
    """Keeps what it was called with, or computed, for the next call."""

    def __init__(self, keeps: str):
        super().__init__()
        self.inner, self.keeps = nn.Linear(32, 32), keeps
        self.before = torch.zeros(64, 32)

    def forward(self, x):
        out = self.inner(x - self.before.detach())
        self.before = x if self.keeps == "input" else out
        return out


@pytest.mark.parametrize("keeps", ["input", "output"])
def test_what_a_call_leaves_for_the_next_is_not_recorded(keeps):
    step = compare(CPU, batches(CPU, 24), is_recorded=False, network=lambda _: Remembering(keeps))
    assert step.reason == "tensors that a step reads are others from call to call"


class Deepening(nn.Module):
    """A part of it is for large batches alone."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        return self.always(x) + self.sometimes(x) if len(x) > 6 else self.always(x)


def test_gradients_that_another_shape_adds_to_are_cleared_with_the_others():
    data = batches(CPU, 64, lambda i: 8 if i % 2 and i > 16 else 5)
    step = compare(CPU, data, lambda model: torch.optim.SGD(model.parameters(), lr=0.05), accumulate=2,
                   network=lambda _: Deepening())
    assert len(recordings(step)) == 2

SCALE = [torch.ones(())]


def test_what_was_recorded_reads_what_it_read_then():
    """A global is not looked at, so that replays go on with the tensor that there was: it has to live."""
    model = net(CPU)
    step = reprise.Step(model, lambda out, target: F.cross_entropy(out * SCALE[0], target), sgd(model), **QUICK)
    data, before = batches(CPU, 12), weakref.ref(SCALE[0])
    by_steps(step, data[:8])
    SCALE[0] = torch.zeros(())
    assert before() is not None and all(loss < 4 for loss in by_steps(step, data[8:]))
    assert recordings(step)[0].replays == 8
