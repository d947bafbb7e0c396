# SPDX-License-Identifier: Apache-2.0
"""On a GPU: the same bits as plain training by deterministic kernels, budgets kept, running out of memory survived."""

from __future__ import annotations

import dataclasses
import gc
import os

import pytest
import torch

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import reprise
from exactness import difference, train, twins
from models import CASES, Case, ResNet, classes, gpt2, tensors, tokens

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def moved(case: Case) -> Case:
    """The case on the GPU."""
    def given():
        return torch.utils._pytree.tree_map(_to_gpu, case.given())

    return dataclasses.replace(case, build=lambda: case.build().to(GPU), given=given)


def _to_gpu(value):
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(GPU).requires_grad_(value.requires_grad)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.long])
def test_trains_bit_for_bit_as_plainly(name):
    case = moved(CASES[name])
    plain, other = twins(case)
    try:
        expected = train(plain, case)
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        pytest.skip("plain training is not deterministic")
    for budget in ("70%", "min"):
        torch._dynamo.reset()
        try:
            taken = train(reprise.compile(twins(case)[1], budget, plan_iterations=500, plan_seconds=1.0), case)
        except reprise.InfeasibleBudget:
            continue
        assert (found := difference(expected, taken)) is None, f"{budget}: {found}"


LARGE = {"resnet": Case(lambda: ResNet((2, 2, 2), 32, 10), tensors(32, 3, 96, 96), classes),
         "gpt2": Case(lambda: gpt2(4, 256, 8, 2000, 256), tokens(8, 256, words=2000), classes)}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("share", [0.8, 0.6])
def test_stays_inside_a_budget_of_bytes(name, share):
    case = moved(LARGE[name])
    plain, other = twins(case)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    train(plain, case)
    plain.zero_grad()
    peak = torch.cuda.max_memory_allocated()
    compiled = reprise.compile(other, before + int(share * (peak - before)))
    for _ in range(2):
        train(compiled, case)
        report = compiled.report()
        assert report.measured_bytes <= report.budget_bytes
        assert report.measured_bytes == pytest.approx(report.predicted_bytes, rel=0.02)


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6])
@pytest.mark.parametrize("name", LARGE)
def test_a_first_step_that_runs_out_of_memory_is_run_again_by_a_tighter_plan(name, share):
    """The device has less than the budget says: in forward, or in backward."""
    case = moved(LARGE[name])
    plain, other = twins(case)
    expected = train(plain, case)
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    train(plain, case)
    used = torch.cuda.max_memory_allocated() - base
    del plain
    gc.collect()
    torch.cuda.empty_cache()
    there = torch.cuda.memory_reserved() + int(share * used)
    torch.cuda.set_per_process_memory_fraction(there / torch.cuda.get_device_properties(GPU).total_memory)
    try:
        compiled = reprise.compile(other, "100%")
        taken = train(compiled, case)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert (found := difference(expected, taken)) is None, found
    assert compiled.report().recomputed > 0
