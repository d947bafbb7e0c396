# SPDX-License-Identifier: Apache-2.0
"""What is computed again, by a plan or under torch.utils.checkpoint, draws the random numbers that it drew, and changes
buffers as often as eager does."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import reprise
from exactness import QUICK, batch, both, compiled, loop, squared, usual
from unusual_models import CheckpointedNorm


def dropped(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.3))


class Nested(nn.Module):
    """A checkpointed region within another, and dropout in both; the inner one runs three times, the second within the
    outer one's second."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = dropped(), nn.Sequential(dropped(), dropped()), dropped()

    def outer(self, x):
        x = self.first(x)
        return self.last(checkpoint(self.inner, x, use_reentrant=False) + x)

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.outer, x, use_reentrant=False)
        return x


@pytest.mark.parametrize("options", [{"budget": "100%"}, {"budget": "min"}, {"budget": "min", "executor": "fx"}], ids=str)
def test_regions_within_regions_draw_what_they_drew(options):
    both(Nested, loop(), lambda model: compiled(model, **options))


class Decayed(nn.Module):
    """A region that changes a row of a buffer, and reads another view of it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("rows", torch.ones(2, 8))

    def forward(self, x):
        row, rows = self.rows[1], self.rows
        return checkpoint(lambda u: self.layer(u * row.mul_(0.9)) * rows.sum(), x, use_reentrant=False)


def backward_of_sum(model, i):
    """In the first step another backward than was planned."""
    out = model(batch(i))
    out.sum().backward()
    yield out


def backward_twice(model, i):
    out = model(batch(i))
    loss = squared(out)
    loss.backward(retain_graph=True)
    loss.backward()
    yield out


def two_at_a_time(model, i):
    """The second changes buffers between the first's forward and backward."""
    outs = [model(batch(2 * i + part)) for part in range(2)]
    for out in outs:
        out.sum().backward()
    yield outs


@pytest.mark.parametrize("step", [usual(), backward_of_sum, backward_twice, two_at_a_time])
@pytest.mark.parametrize("model", [CheckpointedNorm, Decayed])
@pytest.mark.parametrize("budget", ["100%", "min"])
def test_regions_change_buffers_as_often_as_they_run(budget, model, step):
    both(model, loop(step), lambda plain: compiled(plain, budget))


def test_regions_change_buffers_when_they_run_again():
    face = compiled(CheckpointedNorm(), "100%")
    counts = []
    for i in range(3):
        out = face(batch(i))
        counts.append(int(face.body[1].num_batches_tracked))
        squared(out).backward()
        counts.append(int(face.body[1].num_batches_tracked))
    assert counts == [1, 2, 3, 4, 5, 6]


class Cast(nn.Module):
    """A region that casts within; it is stopped there when it runs again, as nothing more is wanted of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def cast(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.second(x.sin()).float().cos()

    def forward(self, x):
        return checkpoint(self.cast, self.first(x), use_reentrant=False)


def test_regions_that_cast_leave_nothing_behind():
    both(Cast, loop(), compiled)
    weight = torch.ones(1, 1, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        weight @ weight
    with torch.no_grad():
        weight.fill_(2)
    with torch.autocast("cpu", torch.bfloat16):  # else the cast of before is taken
        assert (weight @ weight).item() == 4


class Changed(nn.Module):
    """A region whose input is changed in place, by what comes after it or by itself."""

    def __init__(self, change):
        super().__init__()
        self.layers, self._change = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), change

    def forward(self, x):
        return self._change(*self.layers, self.layers[0](x))


def changed_later(first, second, y):
    z = checkpoint(lambda u: second(u).sin(), y, use_reentrant=False)
    y.mul_(3)
    return y + z


def changed_by_itself(first, second, y):
    return checkpoint(lambda u: second(u.mul_(2).sin()), y, use_reentrant=False)


CHANGED = "what a checkpointed region reads is changed in place before the region runs again: change a copy"


@pytest.mark.parametrize("change", [changed_later, changed_by_itself])
def test_changes_to_inputs_of_regions_are_refused_as_by_eager(change):
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Changed(change)(batch(1, 8, 8)).sum().backward()
    with pytest.raises(reprise.CaptureError, match=f"test_drawn.py:.*{CHANGED}"):
        compiled(Changed(change), "min")(batch(1, 8, 8)).sum().backward()


def test_changes_to_buffers_that_a_region_reads_are_refused():
    """Eager would compute with another buffer than before."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("scale", torch.ones(8))

        def forward(self, x):
            z = checkpoint(lambda u: (self.layer(u) * self.scale).sin(), x, use_reentrant=False)
            self.scale.mul_(2)
            return z

    with pytest.raises(reprise.CaptureError, match=CHANGED):
        compiled(Scaled(), "min")(batch(1, 8, 8)).sum().backward()


class Within(nn.Module):
    """A region within another, which is handed what the outer one makes of a buffer that it changes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))
        self.register_buffer("count", torch.zeros(()))

    def outer(self, x):
        y = self.first(x) * self.scale.clone()
        self.scale.mul_(0.5)
        self.count.add_(1)
        return checkpoint(lambda u: self.second(u.sin()).sin(), y, use_reentrant=False)

    def forward(self, x):
        return checkpoint(self.outer, x, use_reentrant=False)


@pytest.mark.parametrize("budget", ["100%", "min"])
def test_regions_within_regions_read_what_the_outer_one_makes_again(budget):
    both(Within, loop(), lambda model: compiled(model, budget))


@torch.library.custom_op("reprise_tests::dropped", mutates_args=())
def dropped_without_a_word(x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Not tagged as one that draws, like many kernels of attention."""
    mask = (torch.rand_like(x) > p) / (1 - p)
    return torch.tanh(x) * mask, mask


@dropped_without_a_word.register_fake
def _(x, p):
    return torch.empty_like(x), torch.empty_like(x)


def _remember(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output[1])


def _of_dropped(ctx, gradient, _):
    x, mask = ctx.saved_tensors
    return gradient * mask * (1 - torch.tanh(x) ** 2), None


dropped_without_a_word.register_autograd(_of_dropped, setup_context=_remember)


class DrawsWithoutAWord(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x, _ = dropped_without_a_word(layer(x), 0.2)
        return x


def test_operations_of_others_draw_what_they_drew():
    assert both(DrawsWithoutAWord, loop()).report().recomputed


class MadeByDefault(nn.Module):
    """Makes tensors of the default type."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)).mul(torch.full((64, 8), 1 / 3) + torch.rand(64, 8)).float()
        return x


def test_what_is_made_again_is_of_the_type_that_was_the_default():
    def step(model, i):
        torch.set_default_dtype(torch.float64)
        try:
            out = model(batch(i).float())
        finally:
            torch.set_default_dtype(torch.float32)
        squared(out).backward()
        yield out

    assert both(MadeByDefault, loop(step)).report().recomputed


def test_another_backward_is_of_the_type_that_was_the_default():
    def step(model, i):
        out = model(batch(i))
        torch.set_default_dtype(torch.float64)
        try:
            out.sum().backward()
        finally:
            torch.set_default_dtype(torch.float32)
        yield out

    both(MadeByDefault, loop(step), compiled)


class DropsUnderCheckpoint(nn.Module):
    """What is checkpointed can be run again before it has run at all, but for its random numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = (nn.Linear(8, 8) for _ in range(3))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        y = self.first(x)
        z = checkpoint(lambda u: self.inner(F.dropout(u.sigmoid() * 3, 0.2)).mul_(2), y, use_reentrant=False)
        v = self.norm(z)
        return sum(t.clamp(-5, 5).mean() for t in (y, z, v)) + self.last(v.clamp(-5, 5)).square().mean()


@pytest.mark.parametrize("seed", range(3))
def test_random_numbers_are_drawn_before_they_are_drawn_again(seed):
    torch.manual_seed(seed)
    plain, x = DropsUnderCheckpoint(), batch(3, 8, 8).requires_grad_()
    face = reprise.compile(copy.deepcopy(plain), "min", **QUICK)
    for model in (plain, face):
        torch.manual_seed(1)
        model(x).backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), face.parameters()))
