# SPDX-License-Identifier: Apache-2.0
"""Optimizers of reprise.Step, in the graph and beside it: the same bits as in a loop."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
import torch.nn.functional as F

import reprise
from exactness import QUICK
from reprise.optimizers import RecordedOptimizer
from steps import adam, batches, by_steps, compare, device, has_graphs, net, plainly, recordings, sgd


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_learning_rates_that_change(device, optimizer):
    def scheduled(model, update):
        schedule = torch.optim.lr_scheduler.StepLR(update, 1, 0.9)
        return lambda optimizer, i: schedule.step()

    compare(device, batches(device, 14), optimizer, after=scheduled)


@pytest.mark.parametrize("changes", [{"lr": 0.001}, {"weight_decay": 0.1}])
def test_settings_that_are_changed(device, changes):
    def setting(model, update):
        def change(optimizer, i):
            if i == 6:
                optimizer.param_groups[0].update(changes)
        return change

    compare(device, batches(device, 12), sgd, after=setting)


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("change", ["fill", "replace"])
def test_learning_rates_that_are_tensors(device, where, change):
    home = torch.device("cpu") if where == "host" else device

    def descent(model):
        return torch.optim.SGD(model.parameters(), lr=torch.tensor(0.05, device=home), foreach=False)

    def changing(model, update):
        def halve(optimizer, i):
            group = optimizer.param_groups[0]
            if i % 6 == 5 and change == "fill":
                group["lr"].mul_(0.5)
            elif i % 6 == 5:
                group["lr"] = torch.tensor(0.05 / i, device=home)
        return halve

    compare(device, batches(device, 16), descent, after=changing, is_recorded=False)


def test_a_learning_rate_is_read_from_the_device(device):
    """Set as a number, it is what a tensor would have been."""
    plain, data = net(device), batches(device, 12)
    other = copy.deepcopy(plain)

    def optimizer(model, lr):
        return torch.optim.AdamW(model.parameters(), lr=lr, capturable=device.type == "cuda",
                                 fused=device.type == "cpu")

    def fill(optimizer, i):
        optimizer.param_groups[0]["lr"].fill_(0.5 ** i)

    def assign(optimizer, i):
        optimizer.param_groups[0]["lr"] = 0.5 ** i

    expected = plainly(plain, optimizer(plain, torch.tensor(0.25, device=device)), data, after=fill)
    step = reprise.Step(other, F.cross_entropy, optimizer(other, 0.25), **QUICK)
    assert all(torch.equal(a, b) for a, b in zip(expected, by_steps(step, data, assign)))


def test_a_state_that_is_loaded(device):
    def loading(model, update):
        states = []

        def load(optimizer, i):
            if i == 3:
                states.append(copy.deepcopy(optimizer.state_dict()))
            if i == 8:
                optimizer.load_state_dict(states[0])
        return load

    compare(device, batches(device, 16), after=loading)


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_a_state_that_is_made_anew(device, optimizer):
    """It is not to be part of a recording, which would make it at each replay."""
    def loading(model, update):
        empty = copy.deepcopy(update.state_dict())

        def load(optimizer, i):
            if i == 7:
                optimizer.load_state_dict(empty)
        return load

    compare(device, batches(device, 16), optimizer, after=loading)


def test_momentum_that_is_switched_on(device):
    def switching(model, update):
        def switch(optimizer, i):
            if i == 7:
                optimizer.param_groups[0]["momentum"] = 0.9
        return switch

    compare(device, batches(device, 16), lambda model: torch.optim.SGD(model.parameters(), lr=0.05), after=switching)


@pytest.mark.parametrize("kind", [sgd, adam])
@pytest.mark.parametrize("in_a_group", [True, False])
def test_parameters_that_the_optimizer_gets_later(device, in_a_group, kind):
    def adding(model, update):
        def add(optimizer, i):
            if i == 7 and in_a_group:
                optimizer.add_param_group({"params": list(model[4].parameters())})
            elif i == 7:
                optimizer.param_groups[0]["params"].extend(model[4].parameters())
        return add

    compare(device, batches(device, 16), lambda model: kind(model[5]), after=adding)


def test_groups_that_come_later_are_made_fit_for_a_graph():
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(first.parameters())
    recorded = RecordedOptimizer(optimizer, torch.device("cpu"))
    optimizer.add_param_group({"params": list(second.parameters())})
    assert recorded.has_changed() and [group["capturable"] for group in optimizer.param_groups] == [True, True]
    assert not recorded.has_changed()


def test_gradients_for_an_optimizer_beside_lie_in_one_place(device, has_graphs):
    model = net(device)
    step = reprise.Step(model, F.cross_entropy, torch.optim.Adagrad(model.parameters(), 0.01), **QUICK)
    for x, target in batches(device, 30, lambda i: (64, 48, 32)[i % 3]):
        step(x, target)
    places = {gradient.data_ptr() for recorded in recordings(step) for _, gradient in recorded.gradients}
    assert len(recordings(step)) == (3 if has_graphs else 0)
    assert len(places) == (len(list(model.parameters())) if has_graphs else 0)


class WarmingUp(torch.optim.AdamW):
    """Does on the host what a recording would not do again."""

    calls = 0

    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups:
            group["weight_decay"] = 0.01 * self.calls
        return super().step(closure)


def every_other_time(model):
    optimizer, calls = sgd(model), []
    usual = optimizer.step

    @functools.wraps(type(optimizer).step)
    def update(closure=None):
        calls.append(1)
        if len(calls) % 2:
            usual(closure)

    optimizer.step = update
    return optimizer


@pytest.mark.parametrize("optimizer", [lambda model: WarmingUp(model.parameters(), 0.01, fused=True), every_other_time])
def test_an_optimizer_that_is_not_torchs_own_runs_beside_the_graph(device, optimizer):
    step = compare(device, batches(device, 12), optimizer)
    assert step._recorded_optimizer.is_beside


def test_gradients_that_people_clear_out_of_habit(device):
    def clearing(model, update):
        return lambda optimizer, i: optimizer.zero_grad()

    compare(device, batches(device, 12), lambda model: torch.optim.Adagrad(model.parameters(), 0.01), after=clearing)


def test_an_optimizer_with_a_state_on_the_host_runs_beside_the_graph(device):
    step = compare(device, batches(device, 12),
                   lambda model: torch.optim.Adagrad(model.parameters(), 0.01, lr_decay=0.1))
    assert step._recorded_optimizer.is_beside


def test_parameters_that_the_optimizer_does_not_have(device):
    def head(model):
        return torch.optim.SGD(model[5].parameters(), lr=0.05)

    compare(device, batches(device, 12), head)


def test_a_hook_of_the_optimizer_that_comes_later(device, has_graphs):
    model, seen = net(device), []
    update = sgd(model)
    step = reprise.Step(model, F.cross_entropy, update, **QUICK)
    for i, (x, target) in enumerate(batches(device, 12)):
        if i == 7:
            update.register_step_post_hook(lambda *_: seen.append(i))
        step(x, target)
    assert seen == [7, 8, 9, 10, 11] and step.reason == (None if has_graphs else f"the model is on {device}")


@pytest.mark.parametrize("kind", [torch.optim.RMSprop, torch.optim.Adadelta])
@pytest.mark.parametrize("foreach", [False, True, None])
def test_rates_that_are_read_on_the_host_stay_there(kind, foreach, device):
    optimizer = kind(net(device).parameters(), lr=0.1, foreach=foreach, capturable=True)
    with RecordedOptimizer(optimizer, device).rates_on_device():
        assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor) == (foreach is not False)
    assert optimizer.param_groups[0]["lr"] == 0.1
