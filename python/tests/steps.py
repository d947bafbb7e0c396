# SPDX-License-Identifier: Apache-2.0
"""What tests of reprise.Step share: networks, what they are fed, and the loop that a step stands for."""

from __future__ import annotations

import copy
from typing import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from emulated_graphs import emulate
from exactness import QUICK, sgd
from gpu import ON_A_GPU
from models import Attention, MobileNet

STEPS = 9
DEVICES = ["cpu", "emulated", pytest.param("cuda", marks=ON_A_GPU)]


@pytest.fixture(autouse=True, params=DEVICES)
def device(request, monkeypatch, deterministic):
    if request.param == "emulated":
        emulate(monkeypatch)
    return torch.device("cuda", 0) if request.param == "cuda" else torch.device("cpu")


@pytest.fixture
def planned(request):
    if request.node.callspec.params["device"] == "emulated":
        pytest.skip("nothing is planned there")


@pytest.fixture
def has_graphs(request) -> bool:
    return request.node.callspec.params["device"] != "cpu"


def recordings(step: reprise.Step) -> list:
    return [recorded for shape in step._shapes.values() for recorded in shape.recorded.values()]


def net(device: torch.device) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.2))
                           for _ in range(6)]).to(device)


def batches(device: torch.device, steps: int = STEPS, rows: Callable[[int], int] = lambda i: 64) -> list:
    random = torch.Generator().manual_seed(4)
    return [(torch.randn(rows(i), 32, generator=random).to(device),
             torch.randint(32, (rows(i),), generator=random).to(device)) for i in range(steps)]


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """As in a graph, where it reads its learning rate from the device."""
    first = next(model.parameters())
    lr = torch.tensor(0.01, device=first.device)
    return torch.optim.AdamW(model.parameters(), lr=lr, capturable=first.is_cuda, fused=not first.is_cuda)


class Words(nn.Module):
    """A small GPT."""

    def __init__(self, words: int = 50, width: int = 16, layers: int = 1, length: int = 12):
        super().__init__()
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.attend = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), Attention(width)) for _ in range(layers))
        self.mix = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                               nn.Linear(4 * width, width), nn.Dropout(0.1)) for _ in range(layers))
        self.project = nn.Linear(width, words, bias=False)
        self.project.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for attend, mix in zip(self.attend, self.mix):
            x = x + attend(x)
            x = x + mix(x)
        return self.project(x).flatten(0, 1)


class Scaling(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        self.inner = nn.Linear(32, 32)
        vars(self).update(attributes)

    def forward(self, x, by=1.0):
        if hasattr(self, "masks"):
            scale = self.masks.all[0]
        else:
            scale = self.scale if hasattr(self, "scale") else self.scales["all"][0]
        return self.inner(x) * scale * by


def words(device: torch.device) -> nn.Module:
    torch.manual_seed(2)
    return Words().to(device)


def convolutions(device: torch.device) -> nn.Module:
    """With batch norms and dropout."""
    torch.manual_seed(2)
    return MobileNet((8, 12)).to(device)


def pictures(device: torch.device) -> list:
    random = torch.Generator().manual_seed(4)
    return [(torch.randn(4, 3, 16, 16, generator=random).to(device),
             torch.randint(10, (4,), generator=random).to(device)) for _ in range(STEPS)]


def sentences(device: torch.device) -> list:
    random = torch.Generator().manual_seed(4)
    drawn = [torch.randint(50, (4, 13), generator=random).to(device) for _ in range(STEPS)]
    return [(tokens[:, :-1], tokens[:, 1:].flatten()) for tokens in drawn]


def plainly(model, optimizer, data, accumulate=1, after=lambda optimizer, i: None) -> list[torch.Tensor]:
    torch.manual_seed(7)
    losses = []
    for i, (x, target) in enumerate(data):
        if i % accumulate == 0:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
        after(optimizer, i)
        losses.append(loss.detach().clone())
    return losses


def by_steps(step: reprise.Step, data, after=lambda optimizer, i: None) -> list[torch.Tensor]:
    torch.manual_seed(7)
    losses = []
    for i, (x, target) in enumerate(data):
        losses.append(step(x, target))
        after(step.optimizer, i)
    return losses


def compare(device, data, optimizer=sgd, accumulate=1, after: Callable = lambda model, update: lambda optimizer, i: None,
            budget: int | str = "min", is_recorded: bool = True, network=net) -> reprise.Step:
    """Trains both ways; the step, once all losses, weights and buffers are the same. `after` makes what is done after
    each call; `is_recorded`: all shapes are in the end, where that can be."""
    plain = network(device)
    other = copy.deepcopy(plain)
    update = optimizer(plain)
    expected = plainly(plain, update, data, accumulate, after(plain, update))
    update = optimizer(other)
    step = reprise.Step(other, F.cross_entropy, update, budget, accumulate=accumulate, **QUICK)
    taken = by_steps(step, data, after(other, update))
    for i, (a, b) in enumerate(zip(expected, taken)):
        assert torch.equal(a, b), f"the loss of step {i}"
    for (name, a), b in zip(plain.state_dict().items(), other.state_dict().values()):
        assert torch.equal(a, b), name
    if step._memory is not None and is_recorded:
        assert step.reason is None and all(shape.recorded for shape in step._shapes.values())
    return step
