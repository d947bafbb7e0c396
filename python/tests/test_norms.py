# SPDX-License-Identifier: Apache-2.0
"""Batch norms on parts of the batch at once, by kernels that a CPU does not have: here it has some that are made up."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import reprise
from cases import CASES
from exactness import QUICK, calls_of, train, twins
from models import Normalized
from reprise import other_ways
from reprise.bench import Bench

WHOLE = 1000  # ns
NORMS = other_ways.NORMS + other_ways.NORM_BACKWARDS


def over(x: torch.Tensor, channel: torch.Tensor) -> torch.Tensor:
    """By channel, as wide as x."""
    return channel.view(1, -1, *[1] * (x.dim() - 2))


def but_channels(x: torch.Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def stats(x, epsilon):
    variance, mean = torch.var_mean(x, but_channels(x), correction=0)
    return mean, (variance + epsilon).rsqrt()


def gather(x, means, scales, running_mean, running_variance, momentum, epsilon, counts):
    total, weights = counts.sum(), counts.view(-1, 1) / counts.sum()
    mean = (weights * means).sum(0)
    variance = (weights * (scales ** -2 - epsilon + (means - mean).square())).sum(0)
    if running_mean is not None:
        running_mean.lerp_(mean, momentum)
        running_variance.lerp_(variance * total / (total - 1), momentum)
    return mean, (variance + epsilon).rsqrt()


def normalize(x, weight, bias, mean, scale, addend, relu, folded):
    if not x.is_contiguous():
        raise RuntimeError("want contiguous images")
    y = (x - over(x, mean)) * over(x, scale)
    y = y if weight is None else y * over(x, weight) + over(x, bias)
    y = y if addend is None else y + addend
    return y.relu() if relu else y


def reduce(dy, x, mean, scale, weight, input_g, weight_g, bias_g):
    assert (input_g, weight_g, bias_g) == (True, False, False)
    none = torch.empty(0)
    return dy.sum(but_channels(x)), (dy * (x - over(x, mean))).sum(but_channels(x)), none, none


def backward(dy, x, mean, scale, weight, total, product, counts):
    assert counts.sum() == x.numel() // x.size(1)
    centred = (x - over(x, mean)) * over(x, scale.square() * product / counts.sum())
    dx = (dy - over(x, total / counts.sum()) - centred) * over(x, scale)
    return dx if weight is None else dx * over(x, weight)


KERNELS = {"batch_norm_stats": stats, "batch_norm_gather_stats_with_counts": gather,
           "batch_norm_backward_reduce": reduce, "batch_norm_backward_elemt": backward}


@pytest.fixture
def cost(monkeypatch, fresh_cache):
    """Sets what batch norms are said to cost on the whole batch and, by their number, on parts."""
    library, ours = torch.library.Library("aten", "IMPL"), torch.library.Library("reprise", "IMPL")
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, "CPU")
    ours.impl("normalize", normalize, "CPU")
    monkeypatch.setattr(other_ways, "_LARGE_NORM", 1)
    monkeypatch.setattr(other_ways, "_STATISTICS_PARTS", other_ways._NORM_PARTS)
    measure = Bench.measured

    def is_said_to_be(by_parts: dict[int, int], normalizing: int = 1) -> None:
        def measured(bench, number, tensors, parts=1):
            found = measure(bench, number, tensors, parts=parts)
            op = bench.calls[number].op
            told = by_parts[parts] if op in NORMS else normalizing if op == "reprise::normalize" else found["cost"]
            return found | {"cost": told}

        monkeypatch.setattr(Bench, "measured", measured)

    yield is_said_to_be
    library._destroy()
    ours._destroy()


def parts_of(face: nn.Module) -> set[int]:
    """On how many a batch norm or its backward runs."""
    return {parts for op, parts in calls_of(face) if op in NORMS}


def stepped(batch: int = 64, layout: torch.memory_format = torch.contiguous_format, **options) -> nn.Module:
    torch.manual_seed(0)
    face = reprise.compile(Normalized().to(memory_format=layout), "min", **QUICK, **options)
    face(torch.randn(batch, 4, 8, 8).to(memory_format=layout)).backward()
    return face


@pytest.mark.parametrize("budget", ["100%", "min"])
@pytest.mark.parametrize("name", ["resnet", "densenet", "mobilenet"])
def test_trains_as_plainly(name, budget, cost, monkeypatch):
    monkeypatch.setattr(other_ways, "_NORM_PARTS", (2,))
    monkeypatch.setattr(other_ways, "_STATISTICS_PARTS", (2,))
    cost({1: WHOLE, 2: 1})
    plain, other = twins(CASES[name])
    expected = train(plain, CASES[name])
    compiled = reprise.compile(other, budget, **QUICK)
    taken = train(compiled, CASES[name])
    assert parts_of(compiled) == {2}
    for step, other_step in zip(expected, taken):
        for tensor, found in step.tensors.items():
            torch.testing.assert_close(other_step.tensors[tensor], found, rtol=1e-4, atol=1e-5, msg=tensor)


def test_norms_that_are_frozen_or_without_weights_train_as_plainly(cost):
    cost({1: WHOLE, 4: 1, 16: WHOLE})
    plain = Normalized()
    plain.layers[2][1] = nn.BatchNorm2d(4, affine=False)
    plain.layers[3][1].weight.requires_grad_(False)
    plain.layers[4][1].requires_grad_(False)
    face, x = reprise.compile(copy.deepcopy(plain), "min", **QUICK), torch.randn(64, 4, 8, 8)
    for model in (plain, face):
        model(x).backward()
    assert parts_of(face) == {4}
    for (name, expected), found in zip(plain.named_parameters(), face.parameters()):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_as_many_parts_are_taken_as_take_least(cost):
    cost({1: WHOLE, 4: WHOLE // 2, 16: WHOLE // 3, 64: WHOLE})
    face = stepped()
    assert parts_of(face) == {16}
    assert face.report().norms_in_parts == 12 and "12 ops   batch norms on parts" in str(face.report())


def test_a_batch_that_takes_less_whole_stays_whole(cost):
    cost({1: WHOLE, 4: 10**9, 16: 10**9})
    face = stepped()
    assert parts_of(face) == {1}
    assert face.report().norms_in_parts == 0 and "batch norms on parts" not in str(face.report())


@pytest.mark.parametrize("makes_the_same_bits", [True, False])
def test_parts_that_take_as_long_make_renewals_possible(makes_the_same_bits, cost, monkeypatch):
    """Statistics 0.96 s and normalising 0.02 s, for 1 s: not clearly less."""
    cost({1: 10**9, 4: 96 * 10**7, 16: 10**9}, normalizing=2 * 10**7)
    monkeypatch.setattr(other_ways, "_MANY", 1)
    monkeypatch.setattr(other_ways, "_same", lambda *_: makes_the_same_bits)
    forward = [parts for op, parts in calls_of(stepped()) if op == "aten::native_batch_norm"]
    assert set(forward) == {1 if makes_the_same_bits else 4}


@pytest.mark.parametrize("given", [{"batch": 6}, {"layout": torch.channels_last}, {"executor": "fx"},
                                   {"exact": True}])
def test_what_cannot_run_in_parts_does_not(given, cost):
    """A batch that can't be divided by four, one that is not contiguous, PyTorch's own executor, exactly eager's."""
    cost({1: WHOLE, 4: 1, 16: 1, 64: 1})
    assert parts_of(stepped(**given)) == {1}


def test_bits_are_eagers_where_they_are_to_be_the_same(cost):
    """Also where that is said only later on."""
    cost({1: WHOLE, 4: 1, 16: 1, 64: 1})
    face = stepped()
    assert parts_of(face) == {4}
    torch.use_deterministic_algorithms(True)
    try:
        face(torch.randn(64, 4, 8, 8)).backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert parts_of(face) == {1}
