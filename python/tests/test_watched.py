# SPDX-License-Identifier: Apache-2.0
"""What reprise.Step notices of its model and its loss, and records anew for; with graphs that are emulated."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import deque
from typing import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from emulated_graphs import emulated
from exactness import QUICK
from reprise.at_hand import of_modules
from steps import Scaling, batches, by_steps, compare, net, plainly, recordings, sgd

CPU = torch.device("cpu")


class Hiding(nn.Module):
    """Has a part that it does not call its own."""

    def __init__(self, hide: Callable[[nn.Module], object]):
        super().__init__()
        self.inner, part = nn.Linear(32, 32), nn.Dropout(0.5)
        self.hidden, self.part = hide(part), [part]

    def forward(self, x):
        return self.inner(self.part[0](x))


class Odd(nn.Module):
    """Not made, and not to be compared."""

    __hash__ = None

    def __init__(self):
        pass

    def __eq__(self, other):
        raise RuntimeError("not to be compared")


@pytest.mark.parametrize("others", [[nn.LazyLinear(3)], [Odd()]], ids=["lazy", "odd"])
def test_parts_that_are_hidden_may_be_odd(others):
    def network(_):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(32, 32))
        model.others = others
        return model

    assert recordings(compare(CPU, batches(CPU, 12), network=network))


class Box:
    def __init__(self, content):
        self.content = content


@pytest.mark.parametrize("hide", [
    lambda part: [part], lambda part: functools.partial(F.relu, part), lambda part: lambda x: part(x), Box])
def test_parts_that_are_hidden_are_looked_at(hide):
    """Their mode, for one."""
    def after(model, update):
        def switch(optimizer, i):
            if i == 9:
                model.part[0].eval()
        return switch

    def network(_):
        torch.manual_seed(2)
        return Hiding(hide)

    assert recordings(compare(CPU, batches(CPU, 24), after=after, network=network))


class Holding:
    """A loss that is no module, and has one."""

    def __init__(self, inner: nn.Module):
        self.inner = inner

    def __call__(self, out, target):
        return self.inner(out, target)


class Weighted:
    """A loss that is called, or whose method is."""

    def __init__(self, weight: torch.Tensor):
        self.weight = weight

    def __call__(self, out, target):
        return F.cross_entropy(out, target, weight=self.weight)

    def of(self, out, target):
        return self(out, target)


def closed_over(weight: torch.Tensor) -> tuple[Callable, Callable]:
    def loss(out, target):
        return F.cross_entropy(out, target, weight=weight)

    def replace(other):
        nonlocal weight
        weight = other

    return loss, replace


class Masks:
    """Of a model, and no module."""

    def __init__(self, mask: torch.Tensor):
        self.all = [mask]


def made(where: str, tensor: torch.Tensor) -> tuple[nn.Module, Callable, Callable]:
    """A model and a loss, one of which has this tensor, and what gives it another."""
    torch.manual_seed(3)
    model, loss, criterion = Scaling(scale=1.0), F.cross_entropy, Weighted(tensor)
    if where == "attribute":
        model = Scaling(scale=tensor)
        return model, loss, lambda other: setattr(model, "scale", other)
    if where == "inside of an attribute":
        model = Scaling(scales={"all": [tensor]})
        return model, loss, lambda other: model.scales.update(all=[other])
    if where == "object of the model":
        masks = Masks(tensor)
        model = Scaling(masks=masks)
        return model, loss, lambda other: setattr(masks, "all", [other])
    if where == "closure":
        return model, *closed_over(tensor)
    if where == "closure of a closure":
        inner, replace = closed_over(tensor)
        return model, lambda out, target: inner(out, target), replace
    if where == "module in a closure":
        module = nn.CrossEntropyLoss(weight=tensor)
        return model, lambda out, target: module(out, target), lambda other: setattr(module, "weight", other)
    if where == "module in an attribute":
        holder = Holding(nn.CrossEntropyLoss(weight=tensor))
        return model, holder, lambda other: setattr(holder.inner, "weight", other)
    if where == "partial":
        loss = functools.partial(F.cross_entropy, weight=tensor)
        return model, loss, lambda other: loss.keywords.update(weight=other)
    loss = criterion if where == "object" else criterion.of
    return model, loss, lambda other: setattr(criterion, "weight", other)


@pytest.mark.parametrize("where", ["attribute", "inside of an attribute", "object of the model", "closure",
                                   "closure of a closure",
                                   "module in a closure", "module in an attribute", "partial", "object", "method"])
def test_tensors_that_a_step_reads_are_held_and_may_be_replaced(where):
    tensor, data = torch.linspace(0.5, 1.5, 32), batches(CPU, 24)
    model, loss, replace = made(where, tensor)
    update, expected = sgd(model), []
    for i, (x, target) in enumerate(data):
        update.zero_grad()
        expected.append(loss(model(x), target))
        expected[-1].backward()
        update.step()
        if i == 11:
            replace(tensor.flip(0))
    model, loss, replace = made(where, tensor)
    step, taken, held = reprise.Step(model, loss, sgd(model), **QUICK), [], []
    for i, (x, target) in enumerate(data):
        taken.append(step(x, target))
        held += [any(each is tensor for each in recorded.touched) for recorded in recordings(step)]
        if i == 11:
            replace(tensor.flip(0))
    assert all(torch.equal(a, b) for a, b in zip(expected, taken))
    assert held == [True] * 8 + [False] * 8  # both are recorded at their fifth call of twelve


def test_a_loss_has_numbers_that_may_change():
    def weighted(weight):
        def loss(out, target):
            return weight * F.cross_entropy(out, target)

        def replace(other):
            nonlocal weight
            weight = other
        return loss, replace

    data, taken = batches(CPU, 24), []
    for is_plain in (True, False):
        model, (loss, replace) = net(CPU), weighted(1.0)
        update = sgd(model)
        step = None if is_plain else reprise.Step(model, loss, update, **QUICK)
        torch.manual_seed(7)
        for i, (x, target) in enumerate(data):
            if is_plain:
                update.zero_grad()
                value = loss(model(x), target)
                value.backward()
                update.step()
            else:
                value = step(x, target)
            taken.append(value.detach())
            if i == 11:
                replace(0.5)
    assert all(torch.equal(a, b) for a, b in zip(taken[:24], taken[24:])) and step.reason is None


def test_a_model_may_hold_what_trains_it():
    """Whose numbers change at each step, and are none of the model's."""
    model = net(CPU)
    model.optimizer = torch.optim.SGD(model.parameters(), 0.01, fused=True)
    model.schedule = torch.optim.lr_scheduler.ExponentialLR(model.optimizer, 0.9)
    model.trainer = reprise.Step(model, F.cross_entropy, model.optimizer, **QUICK)
    for x, target in batches(CPU, 12):
        model.trainer(x, target)
        model.schedule.step()
    assert [recorded.replays for recorded in recordings(model.trainer)] == [8]


def test_what_is_told_apart_of_a_model():
    class Settings:
        rate = 0.5

    model = nn.Module()
    model.inner, model.settings, model.act, model.kind = nn.Identity(), Settings(), torch.tanh, torch.bfloat16
    model.settings.rate, model.many = np.float64(0.25), {"all": [1, (2, "three")]}
    model.table = list(range(2000))
    vars(model)["gone"] = weakref.proxy(Settings())
    found = of_modules([model])
    assert found.others == [
        ("training", True), (("settings",), Settings), (("act",), torch.tanh), (("kind",), torch.bfloat16),
        (("many", "all", 0), 1), (("many", "all", 1, 0), 2), (("many", "all", 1, 1), "three"), (("rate",), 0.25)]
    assert not found.tensors


class Choosing(nn.Module):
    """By attributes of several kinds."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.act, self.way = functools.partial(F.leaky_relu, negative_slope=0.1), self.straight
        self.by, self.plus, self.scales, self.kinds, self.options = None, 2.0, {"by": 1.5}, {"abs"}, None

    def straight(self, x):
        return x

    def turned(self, x):
        return -x

    def forward(self, x):
        y = self.way(self.act(self.layer(x)))
        y = y + self.plus if self.by is None else y * self.by
        y = y * self.scales["by"] if "by" in self.scales else y + self.scales["plus"]
        y = y.abs() if "abs" in self.kinds else y
        return y if self.options is None else y * 3

CHANGES = {
    "partial": lambda model: setattr(model, "act", functools.partial(F.leaky_relu, negative_slope=0.7)),
    "method": lambda model: setattr(model, "way", model.turned),
    "place": lambda model: (setattr(model, "by", 2.0), setattr(model, "plus", None)),
    "key": lambda model: setattr(model, "scales", {"plus": 1.5}),
    "set": lambda model: model.kinds.clear(),
    "type": lambda model: setattr(model, "options", object()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_of_a_model_is_seen(change):
    data, taken = batches(CPU, 24), []
    for is_plain in (True, False):
        torch.manual_seed(3)
        model = Choosing()
        update = sgd(model)
        step = None if is_plain else reprise.Step(model, F.cross_entropy, update, **QUICK)
        for i, (x, target) in enumerate(data):
            if is_plain:
                update.zero_grad()
                taken.append(F.cross_entropy(model(x), target))
                taken[-1].backward()
                update.step()
            else:
                assert torch.equal(step(x, target), taken[i]), i
            if i == 11:
                CHANGES[change](model)
    assert step.reason is None


def test_a_module_that_is_replaced_is_not_held():
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    data = batches(CPU, 24, lambda i: 8 if i == 5 else 16)
    for i, (x, target) in enumerate(data):
        step(x, target)
        if i == 11:
            replaced, model[1] = weakref.ref(model[1]), nn.Linear(32, 32)
            step.optimizer.param_groups[0]["params"] = list(model.parameters())
            step.optimizer.state.clear()
    gc.collect()
    assert replaced() is None


def scaled_by_a_closure():
    by = 1.0

    def act(x):
        return x * by

    def change():
        nonlocal by
        by = 3.0
    return act, change


class Scale:
    def __init__(self):
        self.by = torch.ones(())

    def apply(self, x):
        return x * self.by


def scaled_by_a_method():
    scale = Scale()
    return scale.apply, lambda: setattr(scale, "by", torch.full((), 3.0))


def scaled_by_a_deque():
    by = deque([1.0])
    return functools.partial(lambda by, x: x * by[0], by), lambda: by.__setitem__(0, 3.0)


@pytest.mark.parametrize("as_hook", [True, False])
@pytest.mark.parametrize("made", [scaled_by_a_closure, scaled_by_a_method, scaled_by_a_deque])
def test_what_functions_of_a_model_close_over_is_looked_at(made, as_hook):
    class Acting(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.inner, self.act = nn.Linear(32, 32), None if as_hook else act
            if as_hook:
                self.register_forward_hook(lambda module, given, out: act(out))

        def forward(self, x):
            return self.inner(x) if as_hook else self.act(self.inner(x))

    def trained(run):
        torch.manual_seed(3)
        act, change = made()
        model = Acting(act)
        return run(model, lambda _, i: change() if i == 7 else None)

    data, steps = batches(CPU, 16), []

    def stepwise(model, after):
        steps.append(reprise.Step(model, F.cross_entropy, sgd(model), **QUICK))
        return by_steps(steps[0], data, after)

    expected = trained(lambda model, after: plainly(model, sgd(model), data, after=after))
    assert all(torch.equal(a, b) for a, b in zip(expected, trained(stepwise)))
    assert [recorded.replays for recorded in recordings(steps[0])] == [4]
