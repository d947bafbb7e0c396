# SPDX-License-Identifier: Apache-2.0
"""Backward in its many forms, and gradients on their way, as with a plain module, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from exactness import batch, both, compiled, computes_again, loop, squared, usual
from models import ResNet
from unusual_models import TwoHeads, mlp


def test_two_forwards_before_one_backward():
    def step(model, i):
        first, second = model(batch(i)), model(batch(i + 50))
        (squared(first) + (second - first).abs().mean()).backward()
        yield first, second

    assert computes_again(both(mlp, loop(step)))


def test_two_forwards_then_their_backwards_in_turn():
    def step(model, i):
        for loss in [squared(model(batch(seed))) for seed in (i, i + 50)]:
            loss.backward()
            yield loss

    both(mlp, loop(step))


def test_a_forward_that_is_never_run_backward():
    def step(model, i):
        out = model(batch(i))
        if i % 2:
            squared(out).backward()
        yield out

    both(mlp, loop(step, 4))


def test_retain_graph_allows_a_second_backward():
    def step(model, i):
        loss = squared(model(batch(i)))
        loss.backward(retain_graph=True)
        yield loss
        loss.backward()
        yield loss

    assert computes_again(both(mlp, loop(step)))


def test_retain_graph_with_batch_norm_and_in_place_activations():
    def step(model, i):
        loss = squared(model(batch(i, 2, 3, 32, 32)))
        for retain in (True, True, False):
            loss.backward(retain_graph=retain)
        yield loss

    both(lambda: ResNet((1,), 8, 4), loop(step))


def test_several_losses_each_backward_in_turn():
    def step(model, i):
        first, second = model(batch(i))
        squared(first).backward(retain_graph=True)
        yield first
        second.mean().backward()
        yield second

    both(TwoHeads, loop(step))


@pytest.mark.parametrize("chosen", [slice(0, 1), slice(-1, None), slice(2, 4), slice(None)], ids=str)
def test_autograd_grad_of_some_parameters(chosen):
    def step(model, i):
        yield torch.autograd.grad(squared(model(batch(i))), list(model.parameters())[chosen])

    both(mlp, loop(step))


def test_autograd_grad_then_backward_of_the_rest():
    def step(model, i):
        loss = squared(model(batch(i)))
        found = torch.autograd.grad(loss, list(model.parameters())[:1], retain_graph=True)
        loss.backward()
        yield found

    both(mlp, loop(step))


def test_autograd_grad_of_an_input():
    def step(model, i):
        x = batch(i).requires_grad_()
        yield torch.autograd.grad(squared(model(x)), x)

    both(mlp, loop(step))


def test_backward_on_chosen_inputs_leaves_the_others_alone():
    def step(model, i):
        squared(model(batch(i))).backward(inputs=list(model.parameters())[:2])
        yield

    both(mlp, loop(step))


def test_an_unused_output_leaves_gradients_none():
    face = both(TwoHeads, loop(usual(lambda model, i: model(batch(i))[0]),
                               optimizer=lambda model: torch.optim.AdamW(model.parameters())))
    assert face.second.weight.grad is None


def test_which_output_is_used_may_change():
    both(TwoHeads, loop(usual(lambda model, i: model(batch(i))[i % 2]), 6))


def test_a_gradient_of_another_layout():
    def step(model, i):
        out = model(batch(i, 2, 3, 8, 8))
        out.backward(torch.ones_like(out).contiguous(memory_format=torch.channels_last))
        yield out

    both(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Conv2d(4, 4, 3)), loop(step))


def test_an_output_modified_by_the_caller():
    both(mlp, loop(usual(lambda model, i: model(batch(i)).mul_(2))))


class Aliases(nn.Module):
    """Its outputs share one memory, but the last, which is a view of a parameter."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        h = torch.tanh(self.layer(x))
        return h, h.view(-1), h.detach(), self.layer.weight[:2]


@pytest.mark.parametrize("which", [0, 1])
def test_outputs_of_one_memory_can_not_be_changed_in_place(which):
    face = compiled(Aliases())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            face(batch())[which].mul_(2)


@pytest.mark.parametrize("saved, changed", [(0, 1), (1, 0), (0, 2), (1, 2)])
def test_outputs_of_one_memory_count_changes_together(saved, changed):
    for model in (Aliases(), compiled(Aliases())):
        outputs = model(batch())
        loss = squared(outputs[saved])
        with torch.no_grad():
            outputs[changed].mul_(2)
        with pytest.raises(RuntimeError, match="modified (by an )?inplace"):
            loss.backward()


def test_outputs_of_one_memory_train_together():
    def step(model, i):
        first, second, _, weights = model(batch(i))
        (squared(first) + second.abs().sum() + squared(weights)).backward()
        with torch.no_grad():
            model.layer.weight.mul_(0.5)  # as an optimizer does: what is a view of it can be read all the same
        yield first, second, weights.sum()

    both(Aliases, loop(step))


class Halves(nn.Module):
    """Its outputs lie side by side in one storage."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        h = self.layer(x)
        return h[:, :4], h[:, 4:]


def test_outputs_that_lie_side_by_side_may_be_changed_in_place():
    def step(model, i):
        first, second = model(batch(i))
        second.clamp_(max=0.5).exp_()
        (squared(first) + squared(second)).backward()
        yield first, second

    both(Halves, loop(step))


class Rotated(nn.Module):
    """Complex, and changes its input."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, dtype=torch.cfloat))

    def forward(self, x):
        before = torch.tanh(x.clone() @ self.weight.conj())
        x.mul_(1j)
        return before, torch.tanh(x.clone() @ self.weight)


def test_a_conjugate_that_forward_changes_is_as_it_was_when_forward_runs_again():
    def step(model, i):
        x = torch.complex(batch(i), batch(i + 50)).conj()
        first, second = model(x)
        first.abs().square().mean().backward(retain_graph=True)
        second.abs().mean().backward()
        yield first, second, x

    both(Rotated, loop(step))


# Gradients on their way.
class Truncated(nn.Module):
    """Looks at its state, and hands no gradient to it."""

    def __init__(self):
        super().__init__()
        self.given, self.state, self.out = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x, state):
        state = torch.tanh(self.given(x) + self.state(state.detach()))
        return self.out(state), state


@pytest.mark.parametrize("executor", [None, "fx"])
def test_a_state_that_is_detached_needs_no_earlier_backward(executor):
    def step(model, i):
        state = torch.zeros(64, 16)
        for k in range(3):
            out, state = model(batch(3 * i + k), state)
            (squared(out) + squared(state)).backward()
            yield out

    both(Truncated, loop(step), lambda model: compiled(model, executor=executor))


class Doubled(torch.autograd.Function):
    """Like most functions, it is handed zeros where there is no gradient."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


@pytest.mark.parametrize("executor", [None, "fx"])
def test_backward_ends_where_an_input_is_detached(executor):
    """What made it gets None, not zeros, and still has its values for a backward of its own."""
    def step(model, i):
        weight = torch.full((64, 16), 0.5, requires_grad=True)
        state = Doubled.apply(weight).exp()
        out, following = model(batch(i), state)
        (squared(out) + squared(following)).backward()
        assert weight.grad is None
        squared(state).backward()
        yield weight.grad

    both(Truncated, loop(step), lambda model: compiled(model, executor=executor))


def test_an_optimizer_in_backward():
    def run(model):
        steps = {p: torch.optim.SGD([p], lr=0.05, momentum=0.9) for p in model.parameters()}

        def update(parameter):
            steps[parameter].step()
            steps[parameter].zero_grad()

        for parameter in steps:
            parameter.register_post_accumulate_grad_hook(update)
        return loop(steps=4)(model)

    assert computes_again(both(mlp, run))


def test_hooks_on_parameters_see_and_change_gradients():
    def step(model, i):
        seen = []

        def halve(gradient):
            seen.append(gradient.detach().clone())
            return gradient / 2

        handles = [parameter.register_hook(halve) for parameter in model.parameters()]
        squared(model(batch(i))).backward()
        for handle in handles:
            handle.remove()
        yield sorted(seen, key=lambda t: t.shape)

    both(mlp, loop(step))


def test_a_hook_on_an_output():
    def step(model, i):
        out = model(batch(i))
        out.register_hook(lambda gradient: gradient * 3)
        out.retain_grad()
        squared(out).backward()
        yield out.grad

    both(mlp, loop(step))


def test_gradients_kept_as_zeros():
    def step(model, i):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        before = [parameter.grad for parameter in model.parameters()]
        squared(model(batch(i))).backward()
        yield [one is parameter.grad for one, parameter in zip(before, model.parameters())]

    both(mlp, loop(step))


# What autograd refuses is refused.
def test_double_backward_is_refused():
    face = compiled(mlp())
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(squared(face(batch())), list(face.parameters()), create_graph=True)


def test_several_gradients_at_once_are_refused():
    x = batch().requires_grad_()
    out = compiled(mlp())(x).sum(0)
    with pytest.raises(RuntimeError, match="is_grads_batched=True"):
        torch.autograd.grad(out, x, torch.eye(len(out)), is_grads_batched=True)


def test_a_second_backward_without_retain_graph_is_refused():
    loss = compiled(mlp())(batch()).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_an_output_used_after_backward_is_refused_a_second_one():
    first, second = compiled(TwoHeads())(batch())
    squared(first).backward()
    with pytest.raises(RuntimeError, match="second time"):
        squared(second).backward()


def double_the_input(model, x):
    x.mul_(2)


def double_a_weight(model, x):
    with torch.no_grad():
        model[3].weight.mul_(2)


@pytest.mark.parametrize("change", [double_the_input, double_a_weight])
def test_what_backward_reads_can_not_be_modified_before_it(change):
    face, x = compiled(mlp()), batch()
    loss = squared(face(x))
    change(face, x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("wrap", [nn.Sequential, compiled])
def test_an_output_that_backward_needs_can_not_be_modified(wrap):
    """tanh's backward reads its result: plainly this is refused, so it has to be here."""
    out = wrap(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))(batch())
    loss = out.sum()
    out.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class Noisy(nn.Module):
    """Draws by an operation that is told a device."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * torch.rand_like(x)
        return x


def test_two_graphs_draw_again_what_was_drawn_on_a_device():
    face = both(Noisy, loop(), wrap=lambda model: compiled(model, executor="fx"))
    assert computes_again(face)


def test_two_graphs_refuse_a_second_backward():
    """They write over what forward has kept."""
    loss = squared(compiled(Noisy(), executor="fx")(batch()))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="runs backward once"):
        loss.backward()
