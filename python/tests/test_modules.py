# SPDX-License-Identifier: Apache-2.0
"""One module, two faces: the compiled one is of the module's class and shares its state."""

from __future__ import annotations

import copy
import gc
import io
import pickle

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from exactness import assert_same, batch, both, compiled, loop, note, sgd, squared
from reprise.session import Session
from unusual_models import TwoHeads, mlp


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


# What changes between steps is followed.
def test_a_replaced_part_is_used():
    def step(model, i):
        if i == 2:
            model.first = copy.deepcopy(model.second)
        first, second = model(batch(i))
        (first.sum() + second.sum()).backward()
        yield first, second

    both(TwoHeads, loop(step, 4))


def test_a_loaded_state_is_used():
    torch.manual_seed(9)
    other = mlp().state_dict()

    def step(model, i):
        if i == 2:
            model.load_state_dict(other)
        out = model(batch(i))
        out.sum().backward()
        yield out

    both(mlp, loop(step, 4))


def test_a_changed_dtype_is_followed():
    def step(model, i):
        dtype = (torch.float32, torch.float64)[i]
        out = model.to(dtype)(batch().to(dtype))
        out.sum().backward()
        yield out

    both(mlp, loop(step, 2, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.05)))


def test_forward_hooks_run():
    def run(model):
        seen = []
        model[1].register_forward_hook(lambda module, given, out: seen.append(out.detach().clone()) or out * 0.5)

        def step(model, i):
            seen.clear()
            out = model(batch(i))
            squared(out).backward()
            yield out, list(seen)

        return loop(step)(model)

    both(mlp, run)


def test_a_model_that_changes_its_own_number():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(8, 4), 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x).tanh() * self.calls

    def step(model, i):
        out = model(batch(i))
        squared(out).backward()
        yield out, model.calls

    both(Counts, loop(step, 4))


# Copies.
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_a_deep_copy_trains_on_its_own(used):
    face = compiled(mlp(drop=0.0))
    if used:
        face(batch()).sum().backward()
        face.zero_grad()
    twin = copy.deepcopy(face)
    assert hasattr(twin, "_reprise_state") and twin._reprise_state is not face._reprise_state
    before = [p.detach().clone() for p in face.parameters()]
    optimizer = sgd(twin)
    twin(batch()).sum().backward()
    optimizer.step()
    assert all(p.grad is None for p in face.parameters())
    assert all(torch.equal(p, b) for p, b in zip(face.parameters(), before))
    assert not torch.equal(twin[0].weight, face[0].weight)


def pickled(face: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(face))


def saved(face: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(face, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("through", [pickled, saved])
def test_comes_back_from_a_file_as_the_plain_module(through):
    face = compiled(mlp(drop=0.0))
    face(batch()).sum().backward()
    back = through(face)
    assert type(back) is nn.Sequential
    assert torch.equal(back(batch()), face(batch()))


# Several at a time.
def test_a_compiled_module_inside_a_plain_one():
    def wrap(model):
        model[0] = compiled(model[0])
        return model

    both(lambda: nn.Sequential(mlp(), nn.Linear(4, 2)), loop(), wrap)


def test_what_is_let_go_of_while_something_is_traced_is_released_later(monkeypatch):
    modes = []  # of dispatch, that are on when it is released
    monkeypatch.setattr(Session, "release", lambda _: modes.append(torch._C._len_torch_dispatch_stack()))
    face, other = compiled(mlp()), compiled(mlp())
    squared(face(batch())).backward()
    gc.collect()  # what tests before have left
    modes.clear()
    with FakeTensorMode():
        del face
        gc.collect()
    assert modes == []
    other(batch())
    assert modes == [0]


def test_compiling_again_replaces_the_budget():
    model = mlp()
    second = compiled(compiled(model, "80%"), "60%")
    assert second._reprise_state.plain is model
    assert second._reprise_state.options.budget == "60%"


def test_two_budgets_of_one_model_side_by_side():
    model, found = mlp(drop=0.0), []
    for face in [compiled(model, "80%"), compiled(model, "min")]:
        model.zero_grad()
        squared(face(batch())).backward()
        found.append(note(model))
    assert_same(found[:1], found[1:])
