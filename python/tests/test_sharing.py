# SPDX-License-Identifier: Apache-2.0
"""Inputs that share memory, in one call or another: the same bits as plain training."""

from __future__ import annotations

import copy
from typing import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from exactness import QUICK, batch, both, compiled, loop, squared


class Two(nn.Module):
    """Of two inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, a, b):
        return torch.tanh(self.layer(a)) * b


class Changing(Two):
    def forward(self, a, b):
        before = self.layer(torch.tanh(b))
        a.add_(1)
        return torch.sin(before) * self.layer(b.clone())


def apart(i: int) -> tuple[torch.Tensor, torch.Tensor]:
    return batch(i), batch(i + 50)


def same(i: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = batch(i)
    return x, x[:]


def overlapping(i: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.cat([batch(i), batch(i + 50)])
    return x[:64], x[32:96]


@pytest.mark.parametrize("model", [Two, Changing])
@pytest.mark.parametrize("first", [apart, same, overlapping])
@pytest.mark.parametrize("second", [apart, same, overlapping])
def test_inputs_may_share_memory_in_one_call_or_another(model, first, second):
    def step(one, i):
        given = (first, second)[i % 2](i)
        out = one(*given)
        squared(out).backward(retain_graph=True)
        squared(out).backward()
        yield out, *given

    both(model, loop(step, 4))


def test_a_target_may_be_the_input_at_first():
    plain = nn.Linear(8, 8)
    other = copy.deepcopy(plain)
    face = reprise.compile(other, "min", loss=F.mse_loss, **QUICK)
    for i in range(3):
        x = batch(i)
        noisy = x + i * batch(i + 50)
        F.mse_loss(plain(noisy if i else x[:]), x).backward()
        face(noisy if i else x[:], x).backward()
        assert torch.equal(plain.weight.grad, other.weight.grad)


def test_slices_of_one_tensor_need_no_captures_of_their_own():
    face, data = compiled(Two()), batch(1, 100, 8)
    for i in range(12):
        squared(face(data[i:i + 4], data[3 * i:3 * i + 4])).backward()
    assert len(face._reprise_state.last.subgraphs) == 1


def test_an_input_that_is_changed_and_shares_memory_in_ever_new_ways_is_refused():
    face, data = compiled(Changing()), batch(1, 100, 8)
    with pytest.raises(reprise.CaptureError, match="shares memory with another, and in another way"):
        for i in range(12):
            squared(face(data[:4].detach(), data[3 * i:3 * i + 4])).backward()


def test_a_plan_from_a_file_serves_inputs_that_share_memory_too(tmp_path):
    path, planned = tmp_path / "plan.json", compiled(Changing(), "100%")
    squared(planned(*apart(0))).backward()
    path.write_text(planned.plan, encoding="utf-8")

    def step(one, i):
        given = (apart, same, overlapping)[i % 3](i)
        out = one(*given)
        squared(out).backward()
        yield out, *given

    both(Changing, loop(step, 4), wrap=lambda one: compiled(one, plan=path))


def conjugate(x: torch.Tensor) -> torch.Tensor:
    x = torch.complex(x, x).conj().detach()
    x.t_()
    return x.real


def as_pairs(x: torch.Tensor) -> torch.Tensor:
    x = torch.view_as_real(torch.complex(x, x)).detach()
    x.transpose_(0, 1)
    return x[..., 0]


@pytest.mark.parametrize("view", [conjugate, as_pairs])
def test_views_of_other_numbers_that_are_turned_in_place_are_refused(view):
    with pytest.raises(reprise.CaptureError, match="in place: that can't be planned"):
        squared(compiled(Viewing(view))(batch(1, 8, 8))).backward()


class Copied(nn.Module):
    """A target network: a buffer that is a parameter's memory at first."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.register_buffer("old", self.weight.data)

    def forward(self, x):
        return x @ self.weight + torch.tanh(x @ self.old)


def test_parameters_may_share_memory_and_then_not():
    def step(model, i):
        out = model(batch(i))
        squared(out).backward()
        yield out
        model.old = model.weight.detach() * 0.5 if i % 2 else model.weight.data

    both(Copied, loop(step, 5))


def turned(x: torch.Tensor) -> torch.Tensor:
    x = x.detach()
    x.t_()
    return x


def unsqueezed(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x).unsqueeze_(1)


class Viewing(nn.Module):
    def __init__(self, view: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.view, self.layer = view, nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(self.view(x))


@pytest.mark.parametrize("view", [turned, unsqueezed])
def test_views_of_slices_begin_where_those_do(view):
    data = batch(1, 100, 8)

    def step(model, i):
        out = model(data[9 * i + 3:9 * i + 11])
        squared(out).backward()
        yield out

    both(lambda: Viewing(view), loop(step, 4))
