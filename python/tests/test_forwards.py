# SPDX-License-Identifier: Apache-2.0
"""Several forwards before a backward, and forwards that run again."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import reprise
from exactness import QUICK, note
from reprise import module


def deep(layers: int = 8) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.1))
                           for _ in range(layers)))


def inputs(count: int) -> list[torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return [torch.randn(512, 64) for _ in range(count)]


def step(model: nn.Module, count: int, seed: int) -> int:
    """Trains with `count` forwards before one backward. Returns the peak."""
    torch.manual_seed(seed)
    model.zero_grad()
    with reprise.memory.measure() as memory:
        outs = [model(x) for x in inputs(count)]
        sum(out.square().mean() * (i + 1) for i, out in enumerate(outs)).backward()
    return memory.peak


def within_the_memory_of_one(share: float) -> tuple[nn.Module, nn.Module, nn.Module, int]:
    """A plain model; its twin, compiled for a share of what one forward and backward take; the twin itself."""
    plain = deep()
    before = reprise.memory.in_use()
    one = step(plain, 1, 0) - before
    plain.zero_grad()
    twin = copy.deepcopy(plain)
    budget = reprise.memory.in_use() + int(share * one)
    return plain, reprise.compile(twin, budget, plan_iterations=500, plan_seconds=0.3), twin, budget


@pytest.mark.parametrize("counts", [(2, 2, 2), (3, 1, 3), (1, 2, 1, 2)])
def test_several_forwards_fit_where_plainly_one_does(counts):
    plain, compiled, twin, budget = within_the_memory_of_one(0.95)
    for seed, count in enumerate(counts):
        step(plain, count, seed)
        expected, _ = note(plain).tensors, plain.zero_grad()
        peak = step(compiled, count, seed)
        found = note(twin).tensors
        differ = [name for name in expected if not torch.equal(expected[name], found[name])]
        assert not differ and peak <= budget, (seed, count, differ, peak, budget)


def test_a_forward_whose_values_were_let_go_can_be_gone_through_twice():
    plain, compiled, twin, _ = within_the_memory_of_one(0.95)
    for model in (plain, compiled):
        torch.manual_seed(1)
        first, second = (model(x) for x in inputs(2))
        first.sum().backward(retain_graph=True)
        first.square().sum().backward()
        second.square().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), twin.parameters()))


def test_the_plan_of_several_forwards_is_that_of_one(tmp_path):
    _, compiled, twin, _ = within_the_memory_of_one(3.0)
    step(compiled, 2, 0)
    (tmp_path / "plan.json").write_text(compiled.plan)
    step(reprise.compile(twin, plan=tmp_path / "plan.json"), 1, 0)


def test_forwards_that_do_not_fit_at_all_are_refused():
    _, compiled, _, _ = within_the_memory_of_one(0.5)
    with pytest.raises(reprise.InfeasibleBudget, match="the smallest plan found takes"):
        step(compiled, 6, 0)


@torch.library.custom_op("reprise_tests::counted", mutates_args=("count",))
def counted(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    count.add_(1)
    return x * count


@counted.register_fake
def _(x, count):
    return torch.empty_like(x)


class Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        y = counted(x, count)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * y / x, None


class Changes(nn.Module):
    """Counts in three buffers: in two by one operation, in the third by one that returns something, too."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        for name in ("first", "second", "third"):
            self.register_buffer(name, torch.zeros(2 if name != "third" else 1))

    def forward(self, x):
        torch._foreach_add_([self.first, self.second], 1)
        y = Counts.apply(self.linear(x).tanh().abs() + 0.1, self.third)
        return y, y.tanh()


def test_a_forward_that_runs_again_for_another_backward_changes_buffers_once():
    plain = Changes()
    twin = copy.deepcopy(plain)
    compiled = reprise.compile(twin, "100%", plan_iterations=100)
    for number in range(4):
        for model in (plain, compiled):
            model.zero_grad()
            y, z = model(torch.full((4, 8), 0.5))
            (y.sum() if number % 2 == 0 else (y * z).sum()).backward()
        assert all(torch.equal(a, b) for a, b in zip(plain.buffers(), twin.buffers())), number
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), twin.parameters())), number


def test_a_model_that_is_called_on_its_own_output_stays_inside_its_budget():
    """Without a gradient at first, with one then: two graphs."""
    def step(model: nn.Module) -> int:
        torch.manual_seed(2)
        with reprise.memory.measure() as memory:
            x = inputs(1)[0]
            for _ in range(3):
                x = model(x)
            x.square().mean().backward()
        return memory.peak

    plain = deep(layers=4)
    twin, before = copy.deepcopy(plain), reprise.memory.in_use()
    budget = before + int(0.7 * (step(plain) - before))
    compiled = reprise.compile(twin, budget, plan_iterations=500, plan_seconds=0.3)
    for _ in range(3):
        plain.zero_grad()
        twin.zero_grad()
        step(plain)
        gradients = [parameter.grad for parameter in plain.parameters()]
        plain.zero_grad()
        assert step(compiled) <= budget + sum(g.nbytes for g in gradients)  # the notes are counted, too
        assert all(torch.equal(a, b.grad) for a, b in zip(gradients, twin.parameters()))


def test_a_buffer_that_a_second_forward_changes_is_not_read_again():
    norm = torch.nn.utils.parametrizations.spectral_norm
    plain = nn.Sequential(norm(nn.Linear(16, 32)), nn.LeakyReLU(0.2), norm(nn.Linear(32, 1)))
    twin = copy.deepcopy(plain)
    compiled = reprise.compile(twin, "min", plan_iterations=300)
    for model in (plain, compiled):
        torch.manual_seed(4)
        first, second = model(torch.randn(64, 16)), model(torch.randn(64, 16))
        (first.relu().mean() - second.relu().mean()).backward()
    assert all(torch.equal(a, b) for a, b in zip(plain.buffers(), twin.buffers()))
    for a, b in zip(plain.parameters(), twin.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-7)  # eager adds four terms in another order


class WritesThroughViews(nn.Module):
    """Changes a row of a buffer, another buffer of the same storage, and a part of its input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("table", torch.zeros(2, 8))
        self.register_buffer("row", self.table[1])

    def forward(self, x):
        with torch.no_grad():
            self.table[0].mul_(0.5).add_(x.mean(0) + 1)
            self.row.add_(1)
        x[:, :4] = x[:, :4] * 2 + 1
        return torch.relu(self.linear(x) + self.table.sum(0)) * x


def test_a_forward_that_runs_again_sees_what_it_changed_through_views():
    torch.manual_seed(5)
    plain, twin = WritesThroughViews(), WritesThroughViews()
    twin.load_state_dict(plain.state_dict())
    compiled = reprise.compile(twin, "100%", plan_iterations=100)
    for number in range(3):
        for model in (plain, compiled):
            torch.manual_seed(number)
            model.zero_grad()
            model(torch.randn(16, 8)).t().square().mean().backward()  # not the layout that was planned for
        assert all(torch.equal(a, b) for a, b in zip(plain.buffers(), twin.buffers())), number
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), twin.parameters())), number


def test_a_change_through_a_view_counts_as_one_of_the_buffer():
    twin = WritesThroughViews()
    before = twin.table._version
    reprise.compile(twin, "100%", plan_iterations=100)(torch.randn(16, 8)).sum().backward()
    assert twin.table._version > before


def test_an_output_that_is_held_without_a_backward_costs_what_it_holds_and_no_more():
    plain, compiled, twin, budget = within_the_memory_of_one(2.2)
    held = compiled(inputs(1)[0])
    plain(inputs(1)[0])
    for seed in range(12):
        step(plain, 1, seed)
        expected = [parameter.grad.clone() for parameter in plain.parameters()]
        plain.zero_grad()
        assert step(compiled, 1, seed) <= budget
        assert all(torch.equal(a, b.grad) for a, b in zip(expected, twin.parameters())), seed
    session = compiled._reprise_state.last
    assert len(session.open) == 1 and len(session.ran) == 2 and compiled.report().overhead == 0
    del held
    step(compiled, 1, 0)
    assert not session.open and len(session.ran) == 1


def test_two_threads_may_call_one_module(monkeypatch):
    """One of them begins before the other has looked at what its call captured."""
    model, x, found = reprise.compile(nn.Linear(64, 64), "min", **QUICK), inputs(1)[0], []
    model(x).sum().backward()
    has_begun, may_go_on, run_it = threading.Event(), threading.Event(), module.under_dynamo
    other = threading.Thread(target=lambda: found.append(model(x)))

    def under_dynamo(run, args, kwargs):
        if threading.current_thread() is other:
            has_begun.set()
            may_go_on.wait(60)
            return run_it(run, args, kwargs)
        result = run_it(run, args, kwargs)
        other.start()
        has_begun.wait(60)
        return result

    monkeypatch.setattr(module, "under_dynamo", under_dynamo)
    try:
        out = model(x)
    finally:
        may_go_on.set()
        other.join()
    assert torch.equal(out, found[0])
