# SPDX-License-Identifier: Apache-2.0
"""Gradients in the memory of gradients that nobody reads any more: the same bits, and less memory than eager takes."""

from __future__ import annotations

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import reprise
from exactness import QUICK
from reprise import memory
from reprise.capture import reuse

DEVICES = [torch.device("cpu"), pytest.param(torch.device("cuda"), marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU"))]

# By operation: what has it for its gradient, or in it.
FUNCTIONS = {
    "add": lambda x: x + torch.sin(x),
    "mul": lambda x: torch.sin(x) * 3,
    "div": lambda x: torch.sin(x) / 3,
    "neg": lambda x: -torch.sin(x),
    "where": lambda x: torch.where(x > 0, torch.sin(x), 0.5),
    "threshold_backward": torch.relu,
    "leaky_relu_backward": F.leaky_relu,
    "hardtanh_backward": F.relu6,
    "elu_backward": F.elu,
    "gelu_backward": F.gelu,
    "silu_backward": F.silu,
    "tanh_backward": torch.tanh,
    "sigmoid_backward": torch.sigmoid,
    "_softmax_backward_data": lambda x: x.softmax(-1),
    "_log_softmax_backward_data": lambda x: x.log_softmax(-1),
}


class Net(nn.Module):
    """A function of what a layer made, with a layer above it that makes its gradient."""

    def __init__(self, function, width: int = 37):
        super().__init__()
        self.function = function
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return self.second(self.function(self.first(x))).square().mean()


class Words(nn.Module):
    """Scores of many words, whose gradient is as large as they are."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(2000, 8), nn.Linear(8, 2000)

    def forward(self, tokens):
        return F.cross_entropy(self.head(self.embedding(tokens)), tokens)


def step(model: nn.Module, *inputs: torch.Tensor) -> tuple[list[torch.Tensor], int]:
    """Gradients, and the peak over what is there before."""
    model.zero_grad()
    with memory.measure(inputs[0].device) as taken:
        model(*inputs).backward()
    return [parameter.grad for parameter in model.parameters()], taken.extra


def test_every_operation_is_looked_at():
    assert set(FUNCTIONS) == {into._schema.name.removeprefix("aten::") for into in reuse._INTO.values()}


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_written_over_others_bit_for_bit(name, device):
    torch.manual_seed(0)
    plain = Net(FUNCTIONS[name]).to(device)
    other, x = copy.deepcopy(plain), torch.randn(50, 37, device=device)
    compiled = reprise.compile(other, "100%", executor="native", **QUICK)
    for _ in range(2):
        expected, found = step(plain, x)[0], step(compiled, x)[0]
        assert all(torch.equal(a, b) for a, b in zip(expected, found))
    lowered = compiled._reprise_state.facts[0].step.lowered
    kinds = [lowered.graph["ops"][op]["kind"] for op in lowered.reusing]
    assert any(kind.startswith(f"{name} at") for kind in kinds)
    assert all(lowered.graph["ops"][op]["overwrites"] for op in lowered.reusing)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_loss_over_many_words_takes_two_of_three_gradients(device):
    plain, tokens = Words().to(device), torch.randint(2000, (500,), device=device)
    compiled = reprise.compile(copy.deepcopy(plain), "100%", executor="native", **QUICK)
    scores = 500 * 2000 * 4
    for _ in range(3):
        (_, eager), (_, taken) = step(plain, tokens), step(compiled, tokens)
    assert eager > 3 * scores and taken < 2.3 * scores


def test_shares_are_of_what_eager_takes():
    compiled = reprise.compile(Words(), "100%", **QUICK)
    step(compiled, torch.randint(2000, (500,)))
    trained = compiled._reprise_state.facts[0].step
    assert trained.activation_peak == pytest.approx(3 * 500 * 2000 * 4, rel=0.02)
    assert trained.graph.base_peak < 0.75 * trained.activation_peak


class Twice(nn.Module):
    """Two functions of one value: gradients that are summed up, and one that is read twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        y = torch.tanh(self.first(x))
        return (torch.sigmoid(self.second(y)) + y * y - y.t().contiguous().t()).square().mean()


@pytest.mark.parametrize("budget", ["100%", "min"])
def test_gradients_that_are_still_read_stay(budget):
    torch.manual_seed(0)
    plain, x = Twice(), torch.randn(16, 16)
    compiled = reprise.compile(copy.deepcopy(plain), budget, **QUICK)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(step(plain, x)[0], step(compiled, x)[0]))


def test_a_gradient_that_is_handed_to_backward_is_the_callers():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(37, 37), nn.Tanh()), torch.randn(50, 37, requires_grad=True)
    compiled, handed = reprise.compile(copy.deepcopy(model), "100%", **QUICK), torch.randn(50, 37)
    kept = handed.clone()
    expected, = torch.autograd.grad(model(x), x, handed)
    found, = torch.autograd.grad(compiled(x), x, handed)
    assert torch.equal(expected, found) and torch.equal(handed, kept)
