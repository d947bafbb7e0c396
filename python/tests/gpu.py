# SPDX-License-Identifier: Apache-2.0
"""What tests on a GPU share."""

from __future__ import annotations

import dataclasses
from typing import Callable

import pytest
import torch
from torch import nn

import reprise
from cases import CASES, Case, classes, tensors, tokens
from exactness import Taken, difference, train, twins
from models import ResNet, gpt2

GPU = torch.device("cuda", 0)
ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
NEEDS_A_GPU = [*ON_A_GPU, pytest.mark.usefixtures("deterministic")]


def moved(case: Case) -> Case:
    """The case on the GPU."""
    def given():
        return torch.utils._pytree.tree_map(_to_gpu, case.given())

    return dataclasses.replace(case, build=lambda: case.build().to(GPU), given=given)


def _to_gpu(value):
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(GPU).requires_grad_(value.requires_grad)


class Whole(nn.Module):
    """With its loss: what runs out of memory is Reprise's to mend."""

    def __init__(self, case: Case):
        super().__init__()
        self.body, self.loss = case.build(), case.loss

    def forward(self, *args):
        return self.loss(self.body(*args))


def whole(case: Case) -> Case:
    return dataclasses.replace(case, build=lambda: Whole(case), loss=lambda out: out)


# The first four have cuDNN's dropout, the others make tensors on the CPU.
_LEFT_OUT = {"lstm", "lstm bidirectional", "gru", "rnn", "in place", "in place on views", "shapes", "random ops"}
SMALL = {name: case for name, case in CASES.items() if not case.long and name not in _LEFT_OUT}
LARGE = {"resnet": Case(lambda: ResNet((2, 2, 2), 32, 10), tensors(32, 3, 96, 96), classes),
         "gpt2": Case(lambda: gpt2(4, 256, 8, 2000, 256), tokens(8, 256, words=2000), classes)}


def trained_as_plainly(case: Case, budget: int | str, executor: str, steps: int,
                       plainly: Callable = train) -> nn.Module:
    """The compiled module, once it has trained bit for bit as the plain one, which `plainly` trains."""
    plain, other = twins(case)
    expected = plainly(plain, case, steps)
    compiled = reprise.compile(other, budget, executor=executor, plan_iterations=500, plan_seconds=1.0)
    taken = train(compiled, case, steps)
    assert (found := difference(expected, taken)) is None, found
    return compiled


def if_deterministic(plain: nn.Module, case: Case, steps: int) -> list[Taken]:
    try:
        return train(plain, case, steps)
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        pytest.skip("plain training is not deterministic")


def budget_of(case: Case, plain: nn.Module, share: float) -> int:
    """Bytes: a share of what plain training takes over what is there before, cuBLAS' workspaces included."""
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    train(plain, case)
    plain.zero_grad()
    return before + int(share * (torch.cuda.max_memory_allocated() - before))
