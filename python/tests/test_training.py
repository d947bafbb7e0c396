# SPDX-License-Identifier: Apache-2.0
"""What people do around a training step works as with a plain module, bit for bit."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from typing import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from exactness import Taken, assert_same, note
from models import ResNet, TiedWords, TwoHeads, mlp


def compiled(model: nn.Module, budget: int | str = "min", **kwargs) -> nn.Module:
    return reprise.compile(model, budget, plan_seconds=2.0, plan_iterations=2000, **kwargs)


def batch(*shape: int, seed: int = 1, **kwargs) -> torch.Tensor:
    return torch.randn(*(shape or (64, 8)), generator=torch.Generator().manual_seed(seed), **kwargs)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def both(build: Callable[[], nn.Module], run: Callable[[nn.Module], list[Taken]], budget: int | str = "min",
         wrap: Callable[[nn.Module], nn.Module] | None = None) -> nn.Module:
    """Runs the same on the plain and the compiled module; the compiled one, once nothing differs."""
    torch.manual_seed(3)
    model = build()
    face = (wrap or (lambda m: compiled(m, budget)))(copy.deepcopy(model))
    found = []
    for one in (model, face):
        torch.manual_seed(7)
        found.append(run(one))
    assert_same(*found)
    return face


def computes_again(face: nn.Module) -> bool:
    facts = face._reprise_state.facts
    return sum(step >= 0 for step in facts.plan.steps) > len(facts.step.lowered.graph["ops"])


# Backward in its many forms.
def test_gradients_accumulate_over_micro_batches():
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(3):
            optimizer.zero_grad()
            for part in range(3):
                (model(batch(seed=10 * step + part)).pow(2).mean() / 3).backward()
                taken.append(note(model))
            optimizer.step()
        return taken

    assert computes_again(both(mlp, run))


def test_two_forwards_before_one_backward():
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(3):
            optimizer.zero_grad()
            first, second = model(batch(seed=step)), model(batch(seed=step + 50))
            (first.pow(2).mean() + (second - first).abs().mean()).backward()
            taken.append(note(model, (first, second)))
            optimizer.step()
        return taken

    assert computes_again(both(mlp, run))


def test_two_forwards_then_their_backwards_in_turn():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            losses = [model(batch(seed=step + 50 * i)).pow(2).mean() for i in range(2)]
            for loss in losses:
                loss.backward()
                taken.append(note(model))
        return taken

    both(mlp, run)


def test_retain_graph_allows_a_second_backward():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            loss = model(batch(seed=step)).pow(2).mean()
            loss.backward(retain_graph=True)
            taken.append(note(model))
            loss.backward()
            taken.append(note(model))
        return taken

    assert computes_again(both(mlp, run))


def test_retain_graph_with_batch_norm_and_in_place_activations():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            loss = model(batch(2, 3, 32, 32, seed=step)).pow(2).mean()
            loss.backward(retain_graph=True)
            loss.backward(retain_graph=True)
            loss.backward()
            taken.append(note(model))
        return taken

    both(lambda: ResNet((1,), 8, 4), run)


def test_several_losses_each_backward_in_turn():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            first, second = model(batch(seed=step))
            first.pow(2).mean().backward(retain_graph=True)
            taken.append(note(model))
            second.mean().backward()
            taken.append(note(model))
        return taken

    both(TwoHeads, run)


@pytest.mark.parametrize("chosen", [slice(0, 1), slice(-1, None), slice(2, 4), slice(None)])
def test_autograd_grad_of_some_parameters(chosen):
    def run(model):
        taken = []
        for step in range(3):
            out = model(batch(seed=step))
            wanted = list(model.parameters())[chosen]
            found = torch.autograd.grad(out.pow(2).mean(), wanted)
            taken.append(note(model, (out, found)))
        return taken

    both(mlp, run)


def test_autograd_grad_then_backward_of_the_rest():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            loss = model(batch(seed=step)).pow(2).mean()
            found = torch.autograd.grad(loss, list(model.parameters())[:1], retain_graph=True)
            loss.backward()
            taken.append(note(model, found))
        return taken

    both(mlp, run)


def test_autograd_grad_of_an_input():
    def run(model):
        x = batch().requires_grad_()
        return [note(model, torch.autograd.grad(model(x).pow(2).mean(), x)) for _ in range(3)]

    both(mlp, run)


def test_backward_on_chosen_inputs_leaves_the_others_alone():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            model(batch(seed=step)).pow(2).mean().backward(inputs=list(model.parameters())[:2])
            taken.append(note(model))
        return taken

    both(mlp, run)


def test_an_unused_output_leaves_gradients_none():
    def run(model):
        optimizer, taken = torch.optim.AdamW(model.parameters()), []
        for step in range(3):
            optimizer.zero_grad()
            first, _ = model(batch(seed=step))
            first.pow(2).mean().backward()
            taken.append(note(model))
            optimizer.step()
        return taken

    face = both(TwoHeads, run)
    assert face.second.weight.grad is None


def test_which_output_is_used_may_change():
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(6):
            optimizer.zero_grad()
            model(batch(seed=step))[step % 2].pow(2).mean().backward()
            taken.append(note(model))
            optimizer.step()
        return taken

    both(TwoHeads, run)


def test_double_backward_is_refused():
    face = compiled(mlp())
    loss = face(batch()).pow(2).mean()
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(loss, list(face.parameters()), create_graph=True)


def test_a_second_backward_without_retain_graph_is_refused():
    face = compiled(mlp())
    loss = face(batch()).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_an_output_used_after_backward_is_refused_a_second_one():
    face = compiled(TwoHeads())
    first, second = face(batch())
    first.pow(2).mean().backward()
    with pytest.raises(RuntimeError, match="second time"):
        second.pow(2).mean().backward()


def test_an_input_modified_before_backward_is_refused():
    face, x = compiled(mlp()), batch()
    loss = face(x).pow(2).mean()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_parameter_modified_before_backward_is_refused():
    face = compiled(mlp())
    loss = face(batch()).pow(2).mean()
    with torch.no_grad():
        face[3].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_output_modified_by_the_caller_is_as_plainly():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(seed=step)).mul_(2)
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(mlp, run)


def test_an_output_that_backward_needs_can_not_be_modified():
    """tanh's backward reads its result: plainly this is refused, so it has to be here."""
    for model in (nn.Sequential(nn.Linear(8, 8), nn.Tanh()), compiled(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))):
        out = model(batch())
        loss = out.sum()
        out.detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_step_that_is_never_run_backward():
    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            out = model(batch(seed=step))
            if step % 2:
                out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(mlp, run)


def test_an_expanded_gradient():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            model(batch(seed=step)).sum().backward()
            taken.append(note(model))
        return taken

    assert both(mlp, run)._reprise_state.last.captures == 1


def test_a_gradient_of_another_layout():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(2, 3, 8, 8, seed=step))
            out.backward(torch.ones_like(out).contiguous(memory_format=torch.channels_last))
            taken.append(note(model))
        return taken

    both(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Conv2d(4, 4, 3)), run)


# Gradients on their way.
def test_an_optimizer_in_backward():
    def run(model):
        steps = {p: torch.optim.SGD([p], lr=0.05, momentum=0.9) for p in model.parameters()}

        def update(parameter):
            steps[parameter].step()
            steps[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        taken = []
        for step in range(4):
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    assert computes_again(both(mlp, run))


def test_hooks_on_parameters_see_and_change_gradients():
    def run(model):
        seen = []

        def halve(gradient):
            seen.append(gradient.detach().clone())
            return gradient / 2

        for parameter in model.parameters():
            parameter.register_hook(halve)
        taken = []
        for step in range(3):
            model.zero_grad()
            seen.clear()
            model(batch(seed=step)).pow(2).mean().backward()
            taken.append(note(model, sorted(seen, key=lambda t: t.shape)))
        return taken

    both(mlp, run)


def test_a_hook_on_an_output():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(seed=step))
            out.register_hook(lambda gradient: gradient * 3)
            out.retain_grad()
            out.pow(2).mean().backward()
            taken.append(note(model, out.grad))
        return taken

    both(mlp, run)


def test_forward_hooks_run():
    def run(model):
        seen = []
        model[1].register_forward_hook(lambda module, given, out: seen.append(out.detach().clone()) or out * 0.5)
        taken = []
        for step in range(3):
            model.zero_grad()
            seen.clear()
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, (out, list(seen))))
        return taken

    both(mlp, run)


def test_a_full_backward_hook_is_refused_by_name():
    model = mlp()
    model[1].register_full_backward_hook(lambda module, given, out: None)
    with pytest.raises(reprise.CaptureError, match="hook"):
        compiled(model)(batch())


def test_gradients_kept_as_zeros():
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(3):
            optimizer.zero_grad(set_to_none=False)
            model(batch(seed=step)).pow(2).mean().backward()
            taken.append(note(model))
            optimizer.step()
        return taken

    both(mlp, run)


def test_gradient_clipping():
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(3):
            optimizer.zero_grad()
            model(batch(seed=step)).pow(2).sum().backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            taken.append(note(model, norm))
            optimizer.step()
        return taken

    both(mlp, run)


def test_a_learning_rate_that_changes():
    def run(model):
        optimizer, taken = sgd(model), []
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for step in range(4):
            optimizer.zero_grad()
            model(batch(seed=step)).pow(2).mean().backward()
            taken.append(note(model))
            optimizer.step()
            schedule.step()
        return taken

    assert both(mlp, run)._reprise_state.last.captures == 1


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop])
def test_other_optimizers(optimizer):
    def run(model):
        update, taken = optimizer(model.parameters(), lr=0.01), []
        for step in range(3):
            update.zero_grad()
            model(batch(seed=step)).pow(2).mean().backward()
            taken.append(note(model))
            update.step()
        return taken

    both(mlp, run)


# Mixed precision.
def test_grad_scaler():
    def run(model):
        optimizer, scaler, taken = sgd(model), torch.amp.GradScaler("cpu", init_scale=256.0), []
        for step in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                out = model(batch(seed=step))
                loss = out.float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            taken.append(note(model, out))
            scaler.step(optimizer)
            scaler.update()
        return taken

    both(mlp, run)


@pytest.mark.parametrize("inside", [False, True], ids=["backward-outside", "backward-inside"])
def test_autocast_with_tied_weights(inside):
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(3):
            optimizer.zero_grad()
            tokens = torch.randint(0, 40, (4, 8), generator=torch.Generator().manual_seed(step))
            with torch.autocast("cpu", torch.bfloat16):
                out = model(tokens)
                loss = F.cross_entropy(out.flatten(0, 1).float(), tokens.flatten())
                if inside:
                    loss.backward()
            if not inside:
                loss.backward()
            taken.append(note(model, out))
            optimizer.step()
        return taken

    both(TiedWords, run)


@pytest.mark.parametrize("inside", [False, True], ids=["backward-outside", "backward-inside"])
def test_autocast_with_a_weight_used_twice(inside):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))

    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                out = model(batch(seed=step))
                loss = out.float().pow(2).mean()
                if inside:
                    loss.backward()
            if not inside:
                loss.backward()
            taken.append(note(model, out))
        return taken

    both(Twice, run)


def test_autocast_inside_the_model():
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                x = torch.tanh(self.first(x))
            return self.second(x.float())

    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(Inside, run)


def test_autocast_switched_on_later():
    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=step >= 2):
                out = model(batch(seed=step))
            out.float().pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(mlp, run)


# Modes and shapes.
def test_train_and_eval_in_turn():
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(4):
            model.train()
            optimizer.zero_grad()
            model(batch(4, 3, 32, 32, seed=step)).pow(2).mean().backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                taken.append(note(model, model(batch(2, 3, 32, 32))))
        return taken

    assert both(lambda: ResNet((1,), 8, 4), run)._reprise_state.last.captures == 1


def test_eval_mode_with_gradients_is_as_plainly():
    def run(model):
        model.eval()
        out = model(batch())
        out.pow(2).mean().backward()
        return [note(model, out)]

    both(mlp, run)


def test_no_grad_is_as_plainly():
    def run(model):
        with torch.no_grad():
            out = model(batch())
        assert not out.requires_grad
        with torch.inference_mode():
            again = model(batch())
        return [note(model, (out, again))]

    both(mlp, run)


def test_a_part_set_to_eval_between_steps():
    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            model[2].train(step % 2 == 0)
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(lambda: mlp(drop=0.5), run)


def test_parameters_frozen_between_steps():
    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            model[0].requires_grad_(step < 2)
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(mlp, run)


def test_more_shapes_than_are_kept():
    def run(model):
        optimizer, taken = sgd(model), []
        for step, size in enumerate((8, 9, 10, 11, 8, 9, 12, 8)):
            optimizer.zero_grad()
            out = model(batch(size, 8, seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
            optimizer.step()
        return taken

    face = both(mlp, run, wrap=lambda m: compiled(m, shapes=2))
    assert len(face._reprise_state._entries) == 2


def test_a_smaller_last_batch():
    def run(model):
        optimizer, taken = sgd(model), []
        for epoch in range(2):
            for part in batch(72, 8, seed=epoch).split(32):
                optimizer.zero_grad()
                out = model(part)
                out.pow(2).mean().backward()
                taken.append(note(model, out))
                optimizer.step()
        return taken

    assert computes_again(both(mlp, run))


def test_inputs_that_are_not_contiguous():
    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            x = batch(8, 64, seed=step).t() if step % 2 == 0 else batch(64, 16, seed=step)[:, ::2]
            out = model(x)
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(mlp, run)


def test_inputs_that_share_memory():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))

        def forward(self, a, b):
            return self.layer(a) + self.layer(b)

    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            x = batch(64, 8, seed=step)
            out = model(x, x) if step == 2 else model(x[:32], x[32:])
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(Pair, run)


def test_an_input_changed_in_place_by_the_model():
    class Changes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))

        def forward(self, x):
            return self.layer(x.mul_(0.5))

    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            x = batch(seed=step)
            out = model(x)
            out.pow(2).mean().backward()
            taken.append(note(model, (out, x)))
        return taken

    both(Changes, run)


def test_an_input_returned_as_it_is():
    class Passes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(x).tanh(), x, self.layer.weight

    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            x = batch(seed=step).requires_grad_()
            out, back, weight = model(x)
            (out.pow(2).mean() + back.sum() + weight.pow(2).sum()).backward()
            taken.append(note(model, (out, back), (x,)))
        return taken

    both(Passes, run)


def test_an_output_that_is_a_view_of_another():
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16))

        def forward(self, x):
            x = self.layer(x)
            return x, x[:, :8], x.t()

    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            whole, part, turned = model(batch(seed=step))
            (whole.pow(2).mean() + part.sum() + turned.abs().mean()).backward()
            taken.append(note(model, (whole, part, turned)))
        return taken

    both(Views, run)


def test_channels_last():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(2, 3, 16, 16, seed=step).contiguous(memory_format=torch.channels_last))
            assert out.is_contiguous(memory_format=torch.channels_last)
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3)
                               ).to(memory_format=torch.channels_last), run)


# The loss planned with the model.
def test_a_loss_inside():
    def losses(model, step):
        x, target = batch(seed=step), torch.arange(64) % 4
        if hasattr(model, "_reprise_state"):
            return model(x, target)
        return F.cross_entropy(model(x), target)

    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(3):
            optimizer.zero_grad()
            loss = losses(model, step)
            loss.backward()
            taken.append(note(model, loss))
            optimizer.step()
        return taken

    face = both(mlp, run, wrap=lambda m: compiled(m, loss=F.cross_entropy))
    assert computes_again(face)
    face.eval()
    assert face(batch()).shape == (64, 4)
    assert face(batch(), torch.arange(64) % 4).shape == ()


# One module, two faces.
def test_is_an_instance_of_its_class_and_shares_its_state():
    model = TwoHeads()
    face = compiled(model)
    assert isinstance(face, TwoHeads) and isinstance(face, nn.Module)
    assert list(face.state_dict()) == list(model.state_dict())
    assert face.first is model.first and list(face.parameters()) == list(model.parameters())
    assert type(face).__name__ == "TwoHeads" and repr(face) == repr(model)


def test_attributes_are_read_and_set_through_either_face():
    model = TwoHeads()
    face = compiled(model)
    face.note = 3
    model.other = 4
    assert model.note == 3 and face.other == 4
    face.eval()
    assert not model.training
    del face.note
    assert not hasattr(model, "note")


def test_a_replaced_part_is_used():
    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            if step == 2:
                model.first = copy.deepcopy(model.second)
            first, second = model(batch(seed=step))
            (first.sum() + second.sum()).backward()
            taken.append(note(model, (first, second)))
        return taken

    both(TwoHeads, run)


def test_a_loaded_state_is_used():
    torch.manual_seed(9)
    other = mlp().state_dict()

    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            if step == 2:
                model.load_state_dict(other)
            out = model(batch(seed=step))
            out.sum().backward()
            taken.append(note(model, out))
        return taken

    both(mlp, run)


def test_a_changed_dtype_is_followed():
    def run(model):
        taken = []
        for dtype in (torch.float32, torch.float64):
            model.zero_grad()
            model.to(dtype)
            out = model(batch().to(dtype))
            out.sum().backward()
            taken.append(note(model, out))
        return taken

    both(mlp, run)


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_a_deep_copy_trains_on_its_own(used):
    face = compiled(mlp(drop=0.0))
    if used:
        face(batch()).sum().backward()
        face.zero_grad()
    twin = copy.deepcopy(face)
    assert twin[0].weight is not face[0].weight
    assert hasattr(twin, "_reprise_state") and twin._reprise_state is not face._reprise_state
    before = [p.detach().clone() for p in face.parameters()]
    optimizer = sgd(twin)
    twin(batch()).sum().backward()
    optimizer.step()
    assert all(p.grad is None for p in face.parameters())
    assert all(torch.equal(p, b) for p, b in zip(face.parameters(), before))
    assert not torch.equal(twin[0].weight, face[0].weight)


def test_pickles_as_the_plain_module():
    face = compiled(mlp(drop=0.0))
    face(batch()).sum().backward()
    back = pickle.loads(pickle.dumps(face))
    assert type(back) is nn.Sequential
    assert torch.equal(back(batch()), face(batch()))


def test_saves_and_loads_with_torch():
    face = compiled(mlp(drop=0.0))
    face(batch()).sum().backward()
    file = io.BytesIO()
    torch.save(face, file)
    file.seek(0)
    back = torch.load(file, weights_only=False)
    assert torch.equal(back(batch()), face(batch()))


def test_a_compiled_module_inside_a_plain_one():
    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    def wrap(model):
        model[0] = compiled(model[0])
        return model

    both(lambda: nn.Sequential(mlp(), nn.Linear(4, 2)), run, wrap=wrap)


def test_compiling_again_replaces_the_budget():
    model = mlp()
    first = compiled(model, "80%")
    second = compiled(first, "60%")
    assert second._reprise_state.plain is model
    assert second._reprise_state.options.budget == "60%"


def test_two_budgets_of_one_model_side_by_side():
    model = mlp(drop=0.0)
    faces = [compiled(model, "80%"), compiled(model, "min")]
    found = []
    for face in faces:
        model.zero_grad()
        face(batch()).pow(2).mean().backward()
        found.append(note(model))
    assert_same(found[:1], found[1:])


def test_as_a_backend_of_torch_compile():
    def run(model):
        optimizer, taken = sgd(model), []
        for step in range(3):
            optimizer.zero_grad()
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(getattr(model, "_orig_mod", model), out))
            optimizer.step()
        return taken

    options = {"budget": "60%", "plan_iterations": 2000}
    both(mlp, run, wrap=lambda m: torch.compile(m, backend="reprise", options=options))


def test_a_graph_break_still_trains_exactly():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Sequential(nn.Linear(8, 32), nn.Tanh()), nn.Linear(32, 4)

        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(F.dropout(x, 0.3))

    def run(model):
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    face = both(Breaks, run)
    assert face._reprise_state.last.captures == 2


def test_a_branch_on_data_is_followed():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x):
            x = torch.tanh(self.first(x))
            return self.second(x) if x.sum() > 0 else self.second(-x)

    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            out = model(batch(seed=step) * (1 if step % 2 else -1))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    both(Branches, run)


def test_a_model_that_changes_its_own_number():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(8, 4), 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x).tanh() * self.calls

    def run(model):
        taken = []
        for step in range(4):
            model.zero_grad()
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, (out, model.calls)))
        return taken

    both(Counts, run)


# What can't be done is said.
def test_a_shape_that_depends_on_data_is_refused_or_broken_out():
    class Chooses(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x):
            x = self.layer(x)
            return x[x > 0]

    def run(model):
        model.zero_grad()
        out = model(batch())
        out.sum().backward()
        return [note(model, out)]

    with contextlib.suppress(reprise.CaptureError):
        both(Chooses, run)


def test_a_sparse_gradient_is_refused():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 8, sparse=True), nn.Linear(8, 4)

        def forward(self, tokens):
            return self.head(self.embed(tokens)).tanh()

    with pytest.raises(reprise.CaptureError, match="sparse"):
        compiled(Sparse())(torch.arange(6))


def test_a_generator_of_ones_own_is_refused_or_broken_out():
    generator = torch.Generator()

    class Draws(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x):
            return self.layer(x + torch.randn(8, generator=generator)).tanh()

    def run(model):
        generator.manual_seed(1)
        taken = []
        for step in range(3):
            model.zero_grad()
            out = model(batch(seed=step))
            out.pow(2).mean().backward()
            taken.append(note(model, out))
        return taken

    with contextlib.suppress(reprise.CaptureError):
        both(Draws, run)


@pytest.mark.parametrize("budget", ["0%", "-3", "many", True, 3.5, ""])
def test_a_budget_without_sense_is_refused(budget):
    with pytest.raises(reprise.BudgetError):
        compiled(mlp(), budget)


def test_a_budget_below_what_is_there_says_so():
    with pytest.raises(reprise.InfeasibleBudget, match="in use before the step begins"):
        compiled(mlp(), 1000)(batch())


def test_an_error_of_an_operation_names_its_line():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(4, 8)

        def forward(self, tokens):
            return self.embed(tokens).tanh()

    face = compiled(Fails(), "min")
    face(torch.arange(4)).sum().backward()
    with pytest.raises(IndexError, match="test_training.py"):
        face(torch.arange(4) + 2)
