# SPDX-License-Identifier: Apache-2.0
"""What stands around compile: planning without running, files, executors, costs."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import torch
from torch import nn

import reprise
from cases import CASES
from exactness import (QUICK, SEED, assert_same, batch, both, compiled, computes_again, loop, note, peak_of_a_step, sgd,
                       squared, stack, train, twins)
from unusual_models import mlp


@pytest.fixture
def x():
    return batch(1, 256, 32)


@pytest.fixture
def files(tmp_path, x):
    """A graph and a plan for half of its activations."""
    names = tmp_path / "graph.json", tmp_path / "plan.json"
    reprise.plan(stack(), x, "50%", **QUICK).save(*names)
    return names


def test_compiling_wants_a_module():
    with pytest.raises(TypeError, match="nn.Module"):
        reprise.compile(lambda x: x)
    assert isinstance(reprise.compile(mlp(), "min"), nn.Module)


# Planning without running.
def test_a_plan_runs_nothing_and_predicts_what_a_step_takes(x):
    model = stack(drop=0.2)
    before = torch.get_rng_state()
    planned = reprise.plan(model, x, "50%", **QUICK)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in model.parameters())
    face = compiled(model, "50%")
    peak_of_a_step(face, x)
    assert face.report().overhead == pytest.approx(planned.overhead, abs=0.05)
    assert planned.predicted_bytes < planned.plain_bytes


def test_a_sweep_gives_less_memory_for_more_time(x):
    found = reprise.sweep(stack(), x, budgets=10, **QUICK)
    assert len(found) == 10
    assert [p.predicted_bytes for p in found] == sorted(p.predicted_bytes for p in found)
    assert [p.cost for p in found] == sorted((p.cost for p in found), reverse=True)
    assert found[0].predicted_bytes < 0.8 * found[-1].predicted_bytes


def test_the_largest_batch_trains_inside_the_budget():
    model = stack()
    budget = reprise.memory.in_use() + (1 << 20)
    rows = reprise.max_batch(model, batch(1, 64, 32), budget, **QUICK)
    plain = ((1 << 20) - 8 * 32 * 33 * 4) // (17 * 32 * 4)  # 8 × (linear, gelu) and the input, kept: gradients aside
    assert rows > plain
    assert peak_of_a_step(compiled(model, budget + 64), batch(1, rows, 32)) <= budget + 64


def test_no_batch_without_an_overhead_is_told_from_no_batch():
    for most_overhead, within in ((None, ""), (0, " with an overhead of 0 % at most")):
        with pytest.raises(reprise.InfeasibleBudget, match=f"can't be met{within} even at batch 1"):
            reprise.max_batch(stack(), batch(1, 64, 32), reprise.memory.in_use() + 64, most_overhead=most_overhead, **QUICK)


def test_the_largest_batch_in_a_share_of_itself_is_not_asked_for():
    with pytest.raises(reprise.RepriseError, match="a batch of none"):
        reprise.max_batch(stack(), torch.zeros(0, 64), "1GiB", **QUICK)
    with pytest.raises(ValueError, match="exact=1: want True or False"):
        reprise.max_batch(stack(), batch(1, 64, 32), "1GiB", exact=1, **QUICK)
    with pytest.raises(ValueError, match="most_overhead=-0.5: want at least 0"):
        reprise.max_batch(stack(), batch(1, 64, 32), "1GiB", most_overhead=-0.5, **QUICK)
    with pytest.raises(ValueError, match="budgets=0: want at least 1"):
        reprise.sweep(stack(), batch(1, 64, 32), budgets=0, **QUICK)
    with pytest.raises(reprise.RepriseError, match="max_batch wants a budget in bytes"):
        reprise.max_batch(stack(), batch(1, 64, 32), "50%", **QUICK)


# Files.
def test_a_graph_and_a_plan_are_files_that_the_program_reads(files):
    program = os.path.join(os.path.dirname(reprise.__file__), "bin", "reprise")
    said = subprocess.run([program, "check", *files], capture_output=True, text=True)
    assert said.returncode == 0 and said.stdout.startswith("right:")


def test_a_plan_from_a_file_runs(files, x):
    face = reprise.compile(stack(), plan=files[1])
    peak_of_a_step(face, x)
    assert json.loads(face.plan)["steps"] == json.loads(files[1].read_text())["steps"]
    assert computes_again(face)


@pytest.mark.parametrize("width, layers", [(64, 8), (32, 3)])
def test_a_plan_for_another_graph_is_refused(files, width, layers):
    with pytest.raises(reprise.PlanMismatch, match="is for graph"):
        reprise.compile(stack(layers, width), plan=files[1])(batch(1, 256, width))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "reprise-plan", "version": 1, "steps": [["compute", "no"]]}'])
def test_a_file_that_is_no_plan_is_refused(tmp_path, text, x):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(reprise.PlanMismatch):
        reprise.compile(stack(), plan=tmp_path / "plan.json")(x)


# Executors, costs, the backend.
@pytest.mark.parametrize("name", ["resnet", "mobilenet", "encoder layer", "checkpointed", "gru"])
def test_the_fx_executor_trains_bit_for_bit_as_well(name):
    case = CASES[name]
    plain, model = twins(case)
    assert_same(train(plain, case), train(compiled(model, executor="fx"), case))


def test_the_fx_executor_runs_under_autocast_as_captured():
    def cast(is_cast_backward):
        def step(model, i):
            with torch.autocast("cpu", torch.bfloat16):
                loss = squared(model(batch(i, 64, 32)))
                if is_cast_backward:
                    loss.backward()
            if not is_cast_backward:
                loss.backward()
            yield loss
        return step

    def build():
        return nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 32), nn.Softmax(-1))

    both(build, loop(cast(False)), lambda model: compiled(model, executor="fx"))
    with pytest.raises(RuntimeError, match="runs the backward that was captured: autocast was off in it"):
        loop(cast(True))(compiled(build(), executor="fx"))


def test_the_fx_executor_refuses_lstms_on_the_cpu():
    with pytest.raises(reprise.CaptureError, match='executor="fx" runs no nn.LSTM on the CPU'):
        compiled(nn.LSTM(8, 8), executor="fx")(batch(1, 4, 5, 8))


def test_estimated_costs_run_nothing_and_plan_alike(x):
    planned = reprise.plan(stack(), x, "50%", costs="flops", **QUICK)
    assert json.loads(planned.graph)["cost_unit"] == "flops"
    assert 0 < planned.overhead < 0.5


def test_torch_compile_knows_the_backend(x):
    def run(model, face):
        optimizer, taken, peaks = sgd(model), [], []
        torch.manual_seed(SEED)
        for _ in range(3):
            peaks.append(peak_of_a_step(face, x))
            taken.append(note(model))
            optimizer.step()
        return taken, peaks

    model, plain = stack(drop=0.1), stack(drop=0.1)
    taken, peaks = run(model, torch.compile(model, backend="reprise", options={"budget": "50%", **QUICK}))
    expected, plain_peaks = run(plain, plain)
    assert_same(expected, taken)
    assert max(peaks) < max(plain_peaks)


@pytest.mark.parametrize("option, words", [
    ({"costs": "guess"}, "costs='guess': want 'profile' or 'flops'"),
    ({"executor": "gpu"}, "executor='gpu': want 'native', 'cuda_graph', 'fx' or None"),
    ({"exact": "no"}, "exact='no': want True or False"),
    ({"plan_seconds": 0}, "plan_seconds=0: want more than 0, or None"),
    ({"plan_seconds": float("nan")}, "plan_seconds=nan: want more than 0"),
    ({"plan_iterations": 0}, "plan_iterations=0: want at least 1"),
    ({"seed": -1}, "seed=-1: want at least 0"),
    ({"threads": 0}, "threads=0: want at least 1"),
    *(({"shapes": shapes}, f"shapes={shapes!r}: want a whole number of at least 1")
      for shapes in (0, 2.5, float("nan"), True, "8"))])
def test_an_option_that_makes_no_sense_is_refused(option, words):
    with pytest.raises(ValueError, match=words):
        reprise.compile(mlp(), "50%", **option)


def test_a_loss_that_is_a_class_is_refused():
    with pytest.raises(TypeError, match=r"is the class MSELoss: want one of its objects, MSELoss\(\)"):
        reprise.compile(mlp(), "50%", loss=torch.nn.MSELoss)


def test_a_plan_file_that_is_no_json_is_refused_by_its_name(tmp_path, x):
    (tmp_path / "plan.json").write_text("{,")
    with pytest.raises(reprise.PlanMismatch, match="plan.json: not JSON"):
        reprise.compile(stack(), plan=tmp_path / "plan.json")(x)


def test_cuda_graphs_are_refused_where_there_is_no_gpu():
    model = reprise.compile(torch.nn.Linear(4, 4), executor="cuda_graph")
    with pytest.raises(reprise.RepriseError, match="wants a model on a GPU, and this one is on cpu"):
        model(torch.randn(2, 4))
