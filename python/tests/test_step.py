# SPDX-License-Identifier: Apache-2.0
"""reprise.Step, a whole training step: the same bits as the loop that it stands for, on the CPU and as a CUDA graph."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from exactness import QUICK
from steps import (adam, batches, by_steps, compare, convolutions, device, has_graphs, net, pictures,
                   plainly, planned, recordings, sentences, sgd, STEPS, words)


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("budget", ["100%", "min"])
def test_trains_as_the_loop_does(device, optimizer, budget):
    compare(device, batches(device), optimizer, budget=budget)


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("network, data", [(convolutions, pictures), (words, sentences)])
def test_trains_networks_of_other_kinds(device, network, data, optimizer):
    compare(device, data(device), optimizer, network=network)


def test_sums_up_the_gradients_of_several_calls(device):
    compare(device, batches(device, 24), accumulate=3)


def linear(device: torch.device) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3)]).to(device)


def trained_without(device, left_out, data) -> nn.Module:
    """Two batches an update."""
    model = linear(device)
    plainly(model, sgd(model), [each for i, each in enumerate(data) if i not in left_out], 2)
    return model


@pytest.mark.parametrize("fails", [1, 23])  # updates; the second where graphs run
def test_an_update_whose_optimizer_fails_is_begun_anew(device, fails):
    data, count = batches(device, 52), [0]

    def fail(*_):
        count[0] += 1
        if count[0] == fails:
            raise torch.OutOfMemoryError("none left")

    model = linear(device)
    update = sgd(model)
    update.register_step_pre_hook(fail)
    step = reprise.Step(model, F.cross_entropy, update, "min", accumulate=2, **QUICK)
    for i, (x, target) in enumerate(data):
        if i == 2 * fails - 1:
            with pytest.raises(torch.OutOfMemoryError):
                step(x, target)
        else:
            step(x, target)
    expected = trained_without(device, (2 * fails - 2, 2 * fails - 1), data)
    assert all(torch.equal(a, b) for a, b in zip(expected.parameters(), model.parameters()))
    assert step._memory is None or step.reason is None and recordings(step)


def test_an_update_whose_backward_fails_is_begun_anew(device):
    """And one whose forward fails is not: that adds nothing to gradients."""
    data, fails = batches(device, 12), []

    def fail(_):
        if fails:
            raise torch.OutOfMemoryError(fails.pop())

    model = linear(device)
    model[0][0].weight.register_hook(fail)
    step = reprise.Step(model, F.cross_entropy, sgd(model), "min", accumulate=2, **QUICK)
    for i, (x, target) in enumerate(data):
        if i == 5:
            with pytest.raises(RuntimeError):
                step(x[:, :7], target)
        if i == 7:
            fails.append("none left")
            with pytest.raises(torch.OutOfMemoryError):
                step(x, target)
        else:
            step(x, target)
    expected = trained_without(device, (6, 7), data)
    assert all(torch.equal(a, b) for a, b in zip(expected.parameters(), model.parameters()))


def test_several_shapes(device):
    compare(device, batches(device, 24, lambda i: (64, 48)[i % 2]))


def test_a_layer_that_is_no_longer_frozen_when_the_step_is_recorded(device):
    def freezing(model, update):
        model[0].requires_grad_(False)

        def thaw(_, i):
            if i == 3:
                model[0].requires_grad_(True)
        return thaw

    compare(device, batches(device, 14), after=freezing)


def test_several_shapes_make_one_update(device):
    """Whose gradients people set to None after it."""
    def zeroing(model, update):
        def zero(optimizer, i):
            if i % 2:
                optimizer.zero_grad()
        return zero

    rows = [64, 64, 48, 48] * 8 + [64, 48] * 6
    compare(device, batches(device, len(rows), lambda i: rows[i]), accumulate=2, after=zeroing)


def test_a_step_ends_before_its_optimizer(device):
    model = net(device)
    update = sgd(model)
    step = weakref.ref(reprise.Step(model, F.cross_entropy, update, **QUICK))
    gc.collect()
    assert step() is None
    update.load_state_dict(update.state_dict())


def test_layers_that_are_frozen_and_put_to_evaluation(device):
    def changing(model, update):
        def change(_, i):
            model[0].requires_grad_(i < 7)
            model[1].train(i < 9)
        return change

    compare(device, batches(device, 18), after=changing)


def test_layers_that_are_frozen_get_no_gradient_of_zeros(device):
    """Nor momentum or decay: where several calls make an update, gradients lie where they did."""
    def freezing(model, update):
        return lambda _, i: model[0].requires_grad_(not 11 <= i < 35)

    compare(device, batches(device, 52), accumulate=2, after=freezing)


class Forked(nn.Module):
    """Small batches and large ones train different layers."""

    def __init__(self, device: torch.device):
        super().__init__()
        torch.manual_seed(3)
        self.small, self.large = nn.Linear(32, 32).to(device), nn.Linear(32, 32).to(device)

    def forward(self, x):
        return self.large(x) if len(x) > 48 else self.small(x)


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_layers_that_an_update_does_not_use_are_left_alone(device, optimizer):
    rows = [64, 64, 48, 48] * 8 + [64, 48] * 4 + [64, 64, 48, 48] * 2
    compare(device, batches(device, len(rows), lambda i: rows[i]), optimizer, accumulate=2, network=Forked)


def hook(model):
    model[2].register_forward_hook(lambda module, given, out: 2 * out)


def replace_a_module(model):
    model[3][2] = nn.ReLU()


def change_a_number(model):
    model[1][3].p = 0.6


@pytest.mark.parametrize("change", [hook, replace_a_module, change_a_number])
def test_a_model_that_is_another_from_some_step_on(device, has_graphs, change):
    def changing(model, update):
        return lambda _, i: change(model) if i == 7 else None

    step = compare(device, batches(device, 16), after=changing)
    assert [recorded.replays for recorded in recordings(step)] == ([4] if has_graphs else [])


def test_hooks_of_parameters_run_at_each_step(device, has_graphs):
    seen = []

    def hooking(model, update):
        first, worst = next(model.parameters()), [0.0]

        def adapt(gradient):
            seen.append(len(seen))
            worst[0] = max(worst[0], gradient.abs().max().item())
            return gradient / worst[0]

        return lambda _, i: first.register_hook(adapt) if i == 6 else None

    step = compare(device, batches(device, 12), after=hooking, is_recorded=False)
    assert len(seen) == 2 * 5
    assert step.reason == ("a parameter has a hook" if has_graphs else f"the model is on {device}")


class PartlyExact(nn.Module):
    """Its head is none of autocast's matters."""

    def __init__(self, device: torch.device):
        super().__init__()
        torch.manual_seed(3)
        self.body, self.head = nn.Linear(32, 32).to(device), nn.Linear(32, 32).to(device)

    def forward(self, x):
        x = self.body(x)
        with torch.autocast(x.device.type, enabled=False):
            return self.head(x.float())


@pytest.mark.parametrize("is_beside", [True, False])
def test_backward_and_optimizer_are_under_no_autocast(device, is_beside):
    plain, data = PartlyExact(device), batches(device, 12)
    other = copy.deepcopy(plain)
    update, step, seen = sgd(plain), reprise.Step(other, F.cross_entropy, sgd(other), **QUICK), set()
    if is_beside:
        step.optimizer.register_step_pre_hook(lambda *_: seen.add(torch.is_autocast_enabled(device.type)))
    for x, target in data:
        update.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(plain(x), target)
        loss.backward()
        update.step()
        with torch.autocast(device.type, torch.bfloat16):
            assert torch.equal(loss, step(x, target))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), other.parameters())) and True not in seen


class Masked(nn.Module):
    """Its mask is no buffer."""

    def __init__(self, device: torch.device):
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(32, 32).to(device)
        self.mask = torch.ones(32, device=device)

    def forward(self, x):
        return self.inner(x) * self.mask


def test_attributes_that_are_replaced(device):
    def masking(model, update):
        def mask(optimizer, i):
            if i == 7:
                model.mask = torch.linspace(0, 2, 32, device=device)
        return mask

    compare(device, batches(device, 16), after=masking, network=Masked)


class Named(nn.Module):
    """Its arguments have names."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x, scale=None, shift=None):
        return self.inner(x * scale + shift)


def test_arguments_by_name_in_any_order(device):
    torch.manual_seed(3)
    plain = Named().to(device)
    other = copy.deepcopy(plain)
    update, step = sgd(plain), reprise.Step(other, F.cross_entropy, sgd(other), **QUICK)
    for i, (x, target) in enumerate(batches(device, 24)):
        scale, shift = torch.rand(2, 64, 32, device=device).unbind()
        update.zero_grad()
        loss = F.cross_entropy(plain(x, scale, shift), target)
        loss.backward()
        update.step()
        named = {"scale": scale, "shift": shift}
        if i % 2:
            named = dict(reversed(named.items()))
        assert torch.equal(loss, step(x, target, **named)), i


@pytest.mark.parametrize("lying", ["strided", "expanded"])
def test_inputs_that_lie_otherwise(device, lying):
    def laid(x):
        return torch.stack([x, x], 2)[:, :, 0] if lying == "strided" else x[:1].expand(64, 32)

    compare(device, [(laid(x), target) for x, target in batches(device)])


@pytest.mark.usefixtures("planned")
def test_a_budget_in_bytes(device):
    """Where it binds: the copies of inputs, which graphs read, are inside of it as well. On a GPU it is large beside the
    workspaces that recordings leave out."""
    rows = 1 << (13 if device.type == "cpu" else 18)
    plain, data = net(device), batches(device, 12, lambda i: rows)

    def trained(budget: int | str, steps: int) -> tuple[reprise.Step, list[torch.Tensor]]:
        model = copy.deepcopy(plain)
        step = reprise.Step(model, F.cross_entropy, sgd(model), budget, **QUICK)
        return step, by_steps(step, data[:steps])

    as_it_is = [trained(budget, 3)[0].model.report().predicted_bytes for budget in ("min", "100%")]
    budget = sum(as_it_is) // 2
    step, losses = trained(budget, len(data))
    assert all(torch.equal(a, b) for a, b in zip(plainly(plain, sgd(plain), data), losses))
    report = step.model.report()
    assert report.recomputed > 0 and report.predicted_bytes <= budget
    if device.type != "cpu":
        assert step.reason is None and recordings(step)
        assert step.measured_bytes <= budget


def test_a_loss_that_is_a_module(device):
    """Its weights are replaced after graphs were made."""
    def reweighting(losses):
        def change(optimizer, i):
            if i == 6:
                losses.weight = torch.linspace(0.5, 1.5, 32, device=device)
        return change

    plain, data = net(device), batches(device, 14)
    other = copy.deepcopy(plain)
    losses = [nn.CrossEntropyLoss(weight=torch.ones(32, device=device)) for _ in range(2)]
    update, expected, change = sgd(plain), [], reweighting(losses[0])
    torch.manual_seed(7)
    for i, (x, target) in enumerate(data):
        update.zero_grad()
        loss = losses[0](plain(x), target)
        loss.backward()
        update.step()
        change(update, i)
        expected.append(loss.detach())
    step = reprise.Step(other, losses[1], sgd(other), **QUICK)
    taken = by_steps(step, data, reweighting(losses[1]))
    assert all(torch.equal(a, b) for a, b in zip(expected, taken))


def test_steps_on_several_streams(device):
    if device.type == "cpu":
        pytest.skip("there is one stream")
    plain, data = net(device), batches(device, 16)
    other = copy.deepcopy(plain)
    expected = plainly(plain, sgd(plain), data)
    step = reprise.Step(other, F.cross_entropy, sgd(other), **QUICK)
    streams, losses = [torch.cuda.Stream() for _ in range(2)], []
    torch.manual_seed(7)
    for i, (x, target) in enumerate(data):
        if i == 9:  # from here on nothing but the step itself waits
            torch.cuda.synchronize()
        with torch.cuda.stream(streams[i % 2] if i >= 9 else torch.cuda.current_stream()):
            losses.append(step(x, target))
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(expected, losses))


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


def test_a_call_that_is_refused_leaves_recordings_alone(device):
    model = net(device)
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    before = step.reason
    by_steps(step, batches(device))
    elsewhere = torch.device("meta") if device.type == "cpu" else torch.device("cpu")
    with pytest.raises(reprise.RepriseError, match=f"an input is on {elsewhere}"):
        step(*batches(elsewhere)[0])
    assert step.reason == before


@pytest.mark.usefixtures("planned")
def test_wrong_use_is_refused(device):
    model = net(device)
    with torch.no_grad(), pytest.raises(reprise.RepriseError, match="outside of torch.no_grad"):
        reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)(*batches(device)[0])
    for count in (0, 2.5, True):
        with pytest.raises(ValueError, match=f"accumulate={count}: want a whole number of at least 1"):
            reprise.Step(model, F.cross_entropy, sgd(model), accumulate=count)
    with pytest.raises(ValueError, match="leave executor= out"):
        reprise.Step(model, F.cross_entropy, sgd(model), executor="fx")
    with pytest.raises(TypeError, match="wants a torch.optim.Optimizer, not NoneType"):
        reprise.Step(model, F.cross_entropy, None)
    with pytest.raises(TypeError, match="wants a loss that can be called, not str"):
        reprise.Step(model, "cross entropy", sgd(model))
    with pytest.raises(reprise.RepriseError, match="LBFGS computes the loss several times"):
        reprise.Step(model, F.cross_entropy, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(reprise.RepriseError, match="none of the model's parameters"):
        reprise.Step(model, F.cross_entropy, sgd(net(device)))
    with pytest.raises(reprise.RepriseError, match="the loss is a tensor of shape \\(64,\\)"):
        reprise.Step(model, lambda out, target: F.cross_entropy(out, target, reduction="none"), sgd(model),
                     **QUICK)(*batches(device)[0])
    with pytest.raises(reprise.RepriseError, match="the loss is tuple"):
        reprise.Step(model, lambda out, target: (F.cross_entropy(out, target), out), sgd(model),
                     **QUICK)(*batches(device)[0])
    with pytest.raises(reprise.RepriseError, match="target is missing"):
        reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)(batches(device)[0][0])


def test_what_a_replay_changes_is_counted(device):
    model = net(device)
    step = reprise.Step(model, F.cross_entropy, sgd(model), **QUICK)
    data = batches(device, 12)
    for x, target in data[:8]:
        step(x, target)
    model.eval()
    loss = model(data[8][0]).square().mean()  # by the weights as they are now
    model.train()
    step(*data[9])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
