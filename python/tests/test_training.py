# SPDX-License-Identifier: Apache-2.0
"""Training loops as people write them: accumulation, optimizers, mixed precision, modes, batches of other shapes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from exactness import Run, batch, both, captures, compiled, computes_again, loop, note, sgd, squared, usual
from models import ResNet, TiedWords
from unusual_models import mlp


def test_a_changing_learning_rate_needs_no_new_capture():
    assert captures(both(mlp, loop(steps=4))) == 1


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop])
def test_other_optimizers(optimizer):
    both(mlp, loop(optimizer=lambda model: optimizer(model.parameters(), lr=0.01)))


def test_gradients_accumulate_over_micro_batches():
    def step(model, i):
        for part in range(3):
            (squared(model(batch(10 * i + part))) / 3).backward()
            yield part

    assert computes_again(both(mlp, loop(step)))


def test_gradient_clipping():
    def step(model, i):
        model(batch(i)).pow(2).sum().backward()
        yield nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    both(mlp, loop(step))


def test_a_loss_inside():
    target = torch.arange(64) % 4

    def step(model, i):
        is_face = hasattr(model, "_reprise_state")
        loss = model(batch(i), target) if is_face else F.cross_entropy(model(batch(i)), target)
        loss.backward()
        yield loss

    face = both(mlp, loop(step), wrap=lambda m: compiled(m, loss=F.cross_entropy))
    assert computes_again(face)
    face.eval()
    assert face(batch()).shape == (64, 4)
    assert face(batch(), target).shape == ()


# Mixed precision.
def autocast(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


def test_grad_scaler():
    def run(model):
        optimizer, scaler, taken = sgd(model), torch.amp.GradScaler("cpu", init_scale=256.0), []
        for i in range(3):
            optimizer.zero_grad()
            with autocast():
                loss = squared(model(batch(i)))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            taken.append(note(model, loss))
            scaler.step(optimizer)
            scaler.update()
        return taken

    both(mlp, run)


class Twice(nn.Module):
    """One weight is read twice: autocast keeps its cast from the first time."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


def words(seed: int) -> torch.Tensor:
    return torch.randint(0, 40, (4, 8), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("inside", [False, True], ids=["backward-outside", "backward-inside"])
@pytest.mark.parametrize("build, given", [(TiedWords, words), (Twice, batch)], ids=["tied", "twice"])
def test_autocast_with_a_weight_that_is_used_twice(build, given, inside):
    def step(model, i):
        with autocast():
            out = model(given(i))
            loss = squared(out)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        yield out

    both(build, loop(step))


def test_autocast_inside_the_model():
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x):
            with autocast():
                x = torch.tanh(self.first(x))
            return self.second(x.float())

    both(Inside, loop())


def test_autocast_switched_on_later():
    def forward(model, i):
        with autocast(i >= 2):
            return model(batch(i))

    both(mlp, loop(usual(forward), 4))


# Modes.
def test_train_and_eval_in_turn():
    def step(model, i):
        model.train()
        squared(model(batch(i, 4, 3, 32, 32))).backward()
        yield
        model.eval()
        with torch.no_grad():
            out = model(batch(9, 2, 3, 32, 32))
        yield out

    assert captures(both(lambda: ResNet((1,), 8, 4), loop(step))) == 1


def test_eval_mode_with_gradients():
    both(lambda: mlp().eval(), loop())


def test_no_grad():
    def step(model, i):
        with torch.no_grad():
            out = model(batch())
        with torch.inference_mode():
            again = model(batch())
        yield out, again, out.requires_grad

    both(mlp, loop(step, 1))


def test_a_part_set_to_eval_between_steps():
    def forward(model, i):
        model[2].train(i % 2 == 0)
        return model(batch(i))

    both(lambda: mlp(drop=0.5), loop(usual(forward), 4))


def test_parameters_frozen_between_steps():
    def forward(model, i):
        model[0].requires_grad_(i < 2)
        return model(batch(i))

    both(mlp, loop(usual(forward), 4))


# Shapes.
def of_sizes(*sizes: int) -> Run:
    return loop(usual(lambda model, i: model(batch(i, sizes[i], 8))), len(sizes))


def test_more_shapes_than_are_kept():
    face = both(mlp, of_sizes(8, 9, 10, 8, 9), wrap=lambda m: compiled(m, shapes=2))
    assert len(face._reprise_state._entries) == 2


def test_a_smaller_last_batch():
    assert computes_again(both(mlp, of_sizes(32, 32, 8, 32, 32, 8)))
