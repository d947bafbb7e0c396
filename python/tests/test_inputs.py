# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs out of the ordinary: views, layouts, memory that is shared or changed in place."""

from __future__ import annotations

import torch
from torch import nn

from exactness import batch, both, loop, squared, usual
from unusual_models import mlp


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))


def test_inputs_that_are_not_contiguous():
    def forward(model, i):
        return model(batch(i, 64, 16)[:, ::2] if i % 2 else batch(i, 8, 64).t())

    both(mlp, loop(usual(forward), 4))


def test_inputs_that_share_memory():
    class Pair(Layers):
        def forward(self, a, b):
            return self.layer(a) + self.layer(b)

    def forward(model, i):
        x = batch(i)
        return model(x, x) if i == 2 else model(x[:32], x[32:])

    both(Pair, loop(usual(forward)))


def test_an_input_changed_in_place_by_the_model():
    class Changes(Layers):
        def forward(self, x):
            return self.layer(x.mul_(0.5))

    def step(model, i):
        x = batch(i)
        out = model(x)
        squared(out).backward()
        yield out, x

    both(Changes, loop(step))


def test_inputs_and_parameters_returned_as_they_are():
    class Passes(Layers):
        def forward(self, x):
            return self.layer(x).tanh(), x, self.layer[0].weight

    def step(model, i):
        x = batch(i).requires_grad_()
        out, back, weight = model(x)
        (squared(out) + back.sum() + squared(weight)).backward()
        yield out, back, x.grad

    both(Passes, loop(step))


def test_outputs_that_are_views_of_another():
    class Views(Layers):
        def forward(self, x):
            x = self.layer(x)
            return x, x[:, :4], x.t()

    def step(model, i):
        whole, part, turned = out = model(batch(i))
        (squared(whole) + part.sum() + turned.abs().mean()).backward()
        yield out

    both(Views, loop(step))


def test_outputs_have_the_layout_of_plain_ones():
    def build():
        layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3)
        return nn.Sequential(*layers).to(memory_format=torch.channels_last)

    def forward(model, i):
        out = model(batch(i, 2, 3, 16, 16).contiguous(memory_format=torch.channels_last))
        assert out.is_contiguous(memory_format=torch.channels_last)
        return out

    both(build, loop(usual(forward)))
