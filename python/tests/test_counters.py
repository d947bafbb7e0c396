# SPDX-License-Identifier: Apache-2.0
"""Counters of batches: one operation counts for all of them, unless somebody looks."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

import reprise
from exactness import QUICK


class Counted(nn.Module):
    """Batch norms, and what somebody does with their counters."""

    def __init__(self, use):
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm1d(8) for _ in range(4)])
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.use = use

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = torch.tanh(norm(layer(nn.functional.dropout(x, 0.1))))
        return self.use(self, x)


def read_one(model: Counted, x: torch.Tensor) -> torch.Tensor:
    return x * model.norms[1].num_batches_tracked


def count_one_again(model: Counted, x: torch.Tensor) -> torch.Tensor:
    model.norms[1].num_batches_tracked.add_(1)
    return x


def norm_again(model: Counted, x: torch.Tensor) -> torch.Tensor:
    return model.norms[1](x)


@pytest.mark.parametrize("use, together", [(lambda _, x: x, 4), (read_one, 3), (count_one_again, 3), (norm_again, 3)],
                         ids=["unread", "read", "counted again", "used again"])
@pytest.mark.parametrize("budget", ["100%", "min"])
def test_counters_that_nobody_reads_are_counted_together(use, together, budget):
    torch.manual_seed(0)
    plain = Counted(use)
    face = reprise.compile(copy.deepcopy(plain), budget, **QUICK)
    for i in range(3):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(i))
        for model in (plain, face):
            torch.manual_seed(i)
            model.zero_grad()
            model(x).square().mean().backward()
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), face.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(plain.buffers(), face.buffers()))
    calls = face._reprise_state.facts[0].step.lowered.program.calls
    counted, = [call.arguments[0] for call in calls if call.op == "aten::_foreach_add_"]
    assert len(counted) == together
    assert sum("_foreach_add_" in op["kind"] for op in json.loads(face.graph)["ops"]) == 1
