# SPDX-License-Identifier: Apache-2.0
"""reprise.Step, a whole training step: the same bits as the loop that it stands for, on the CPU and as a CUDA graph."""

from __future__ import annotations

import copy
import os
from typing import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import reprise
from exactness import QUICK

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
STEPS = 9


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    torch.use_deterministic_algorithms(True)
    yield torch.device(request.param, 0) if request.param == "cuda" else torch.device("cpu")
    torch.use_deterministic_algorithms(False)


def net(device: torch.device) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.2))
                           for _ in range(6)]).to(device)


def batches(device: torch.device, steps: int = STEPS, rows: Callable[[int], int] = lambda i: 64) -> list:
    random = torch.Generator().manual_seed(4)
    return [(torch.randn(rows(i), 32, generator=random).to(device),
             torch.randint(32, (rows(i),), generator=random).to(device)) for i in range(steps)]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """On a GPU as in a graph, where it reads its learning rate from the device."""
    first = next(model.parameters())
    lr = torch.tensor(0.01, device=first.device) if first.is_cuda else 0.01
    return torch.optim.AdamW(model.parameters(), lr=lr, capturable=first.is_cuda)


def plainly(model, optimizer, data, accumulate=1, after=lambda optimizer, i: None) -> list[torch.Tensor]:
    torch.manual_seed(7)
    losses = []
    for i, (x, target) in enumerate(data):
        if i % accumulate == 0:
            optimizer.zero_grad(set_to_none=accumulate == 1)
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


def compare(device, data, optimizer=sgd, accumulate=1, after: Callable = lambda update: lambda optimizer, i: None,
            budget="min") -> reprise.Step:
    """Trains both ways; the step, once all losses, weights and buffers are the same."""
    plain = net(device)
    other = copy.deepcopy(plain)
    update = optimizer(plain)
    expected = plainly(plain, update, data, accumulate, after(update))
    update = optimizer(other)
    step = reprise.Step(other, F.cross_entropy, update, budget, accumulate=accumulate, **QUICK)
    taken = by_steps(step, data, after(update))
    for i, (a, b) in enumerate(zip(expected, taken)):
        assert torch.equal(a, b), f"the loss of step {i}"
    for (name, a), b in zip(plain.state_dict().items(), other.state_dict().values()):
        assert torch.equal(a, b), name
    if device.type == "cuda":
        assert step.reason is None and all(shape.recorded for shape in step._shapes.values())
    return step


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("budget", ["100%", "min"])
def test_trains_as_the_loop_does(device, optimizer, budget):
    compare(device, batches(device), optimizer, budget=budget)


def test_sums_up_the_gradients_of_several_calls(device):
    compare(device, batches(device, 24), accumulate=3)


def test_several_shapes(device):
    compare(device, batches(device, 24, lambda i: (64, 48)[i % 2]))


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_learning_rates_that_change(device, optimizer):
    def scheduled(update):
        schedule = torch.optim.lr_scheduler.StepLR(update, 1, 0.9)
        return lambda optimizer, i: schedule.step()

    compare(device, batches(device, 14), optimizer, after=scheduled)


@pytest.mark.parametrize("changes", [{"lr": 0.001}, {"weight_decay": 0.1}])
def test_settings_that_are_changed(device, changes):
    def setting(update):
        def change(optimizer, i):
            if i == 6:
                optimizer.param_groups[0].update(changes)
        return change

    compare(device, batches(device, 12), sgd, after=setting)


def test_a_learning_rate_is_read_from_the_device(device):
    """Set as a number, it is what a tensor would have been."""
    plain, data = net(device), batches(device, 12)
    other = copy.deepcopy(plain)
    update = adam(plain)

    def fill(optimizer, i):
        torch.as_tensor(optimizer.param_groups[0]["lr"]).fill_(0.5 ** i)
        if device.type == "cpu":
            optimizer.param_groups[0]["lr"] = 0.5 ** i

    def assign(optimizer, i):
        optimizer.param_groups[0]["lr"] = 0.5 ** i

    expected = plainly(plain, update, data, after=fill)
    step = reprise.Step(other, F.cross_entropy, torch.optim.AdamW(other.parameters(), lr=0.01), **QUICK)
    assert all(torch.equal(a, b) for a, b in zip(expected, by_steps(step, data, assign)))


def test_a_state_that_is_loaded(device):
    def loading(update):
        states = []

        def load(optimizer, i):
            if i == 3:
                states.append(copy.deepcopy(optimizer.state_dict()))
            if i == 8:
                optimizer.load_state_dict(states[0])
        return load

    compare(device, batches(device, 16), after=loading)


def test_layers_that_are_frozen_and_put_to_evaluation(device):
    def changing(model):
        def change(_, i):
            model[0].requires_grad_(i < 7)
            model[1].train(i < 9)
        return change

    plain, data = net(device), batches(device, 14)
    other = copy.deepcopy(plain)
    expected = plainly(plain, sgd(plain), data, after=changing(plain))
    step = reprise.Step(other, F.cross_entropy, sgd(other), "min", **QUICK)
    assert all(torch.equal(a, b) for a, b in zip(expected, by_steps(step, data, changing(other))))


def test_an_optimizer_with_a_state_on_the_host_runs_beside_the_graph(device):
    step = compare(device, batches(device, 12),
                   lambda model: torch.optim.Adagrad(model.parameters(), 0.01, lr_decay=0.1))
    assert step._is_beside


def test_parameters_that_the_optimizer_does_not_have(device):
    def head(model):
        return torch.optim.SGD(model[5].parameters(), lr=0.05)

    compare(device, batches(device, 12), head)


def test_losses_are_the_callers_to_keep(device):
    model = net(device)
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    losses = [(loss := step(x, target), loss.item()) for x, target in batches(device)]
    assert all(loss.item() == value for loss, value in losses)
    assert len({value for _, value in losses}) == STEPS


def test_evaluation_is_the_models(device):
    model = net(device)
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    for x, target in batches(device, 6):
        step(x, target)
    model.eval()
    assert model(batches(device)[0][0]).shape == (64, 32)
    with pytest.raises(reprise.RepriseError, match="Step trains"):
        step(*batches(device)[0])


def test_what_can_not_be_recorded_runs_as_it_is(device):
    if device.type == "cpu":
        pytest.skip("nothing is recorded there")

    class Waits(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(32, 32)

        def forward(self, x):
            counts = torch.tensor([1, 2], device=x.device).repeat(x.shape[0] // 2)
            return self.inner(x).repeat_interleave(counts, dim=0)[:x.shape[0]]

    model = Waits().to(device)
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    losses = [step(x, target).item() for x, target in batches(device)]
    assert step.reason is not None and len(set(losses)) == STEPS


def test_wrong_use_is_refused(device):
    model = net(device)
    with pytest.raises(ValueError, match="accumulate=0: want at least 1"):
        reprise.Step(model, F.cross_entropy, sgd(model), accumulate=0)
    with pytest.raises(reprise.RepriseError, match="target is missing"):
        reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)(batches(device)[0][0])
