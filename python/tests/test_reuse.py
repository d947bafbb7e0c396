# SPDX-License-Identifier: Apache-2.0
"""Gradients in the memory of gradients that nobody reads any more: the same bits, and less memory than eager takes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import reprise
from exactness import QUICK
from gpu import ON_A_GPU
from reprise import memory
from reprise.capture import reuse

DEVICES = [torch.device("cpu"), pytest.param(torch.device("cuda"), marks=ON_A_GPU)]

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


def own(backward):
    """The identity, with a backward of one's own."""
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient)
    return lambda x: Own.apply(x)  # Dynamo of torch 2.11 can't capture a module's attribute that is Own.apply itself


class Linears(nn.Module):
    def __init__(self, between):
        super().__init__()
        self.between = between
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.between(self.first(x))).square().mean()


def changed_later(gradient: torch.Tensor) -> torch.Tensor:
    twice = gradient * 2
    twice.add_(1)
    return twice * twice


def read_twofold(gradient: torch.Tensor) -> torch.Tensor:
    twice = gradient * 2
    return twice * twice[3:4].expand(8, 8)


BETWEEN = {
    "an argument read twice, once transposed": lambda y: y + y.t(),
    "changed in place later": own(changed_later),
    "read in part by the same operation": own(read_twofold),
    "checkpointed, in place": lambda y: checkpoint(lambda u: F.relu(u * 2 + u, inplace=True), y, use_reentrant=False),
    "transposed norm": lambda y: F.batch_norm(y.t() * 2, None, None, training=True).clamp(-1, 1),
    "doubles in between": lambda y: (y.double() * y).float(),
}


@pytest.mark.parametrize("executor", ["native", "fx"])
@pytest.mark.parametrize("budget", ["100%", "min"])
@pytest.mark.parametrize("name", BETWEEN)
def test_memory_that_is_read_or_changed_otherwise(name, budget, executor):
    torch.manual_seed(0)
    plain, x = Linears(BETWEEN[name]), torch.randn(8, 8)
    compiled = reprise.compile(copy.deepcopy(plain), budget, executor=executor, **QUICK)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(step(plain, x)[0], step(compiled, x)[0]))


class ChannelsLast(nn.Module):
    """Fake tensors of some gradients have other strides than real ones."""

    def __init__(self, after):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
        self.after = after

    def forward(self, x):
        y = self.after(self.norm(self.first(x)) + x)
        return self.after(self.second(y) * 2).sin().flatten(1).mean()


@pytest.mark.parametrize("executor", ["native", "fx"])
@pytest.mark.parametrize("layouts", ["model", "input", "both"])
@pytest.mark.parametrize("after", [F.relu6, F.silu, F.elu, F.hardtanh, lambda x: x.log_softmax(1)],
                         ids=["relu6", "silu", "elu", "hardtanh", "log_softmax"])
def test_images_with_channels_last(after, layouts, executor):
    torch.manual_seed(0)
    plain, x = ChannelsLast(after), torch.randn(2, 8, 8, 8)
    if layouts != "input":
        plain = plain.to(memory_format=torch.channels_last)
    if layouts != "model":
        x = x.to(memory_format=torch.channels_last)
    compiled = reprise.compile(copy.deepcopy(plain), "100%", executor=executor, **QUICK)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(step(plain, x)[0], step(compiled, x)[0]))
