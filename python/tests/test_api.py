# SPDX-License-Identifier: Apache-2.0
"""What stands around compile: planning without running, files, executors, costs, budgets, the cache, graph breaks."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import reprise
from exactness import difference, train, twins
from models import CASES, mlp
from reprise.cache import Cache

QUICK = {"plan_seconds": 1.0, "plan_iterations": 1000}


def stack(layers: int = 8, width: int = 32, drop: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    parts = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(drop)) for _ in range(layers)]
    return nn.Sequential(*parts)


def batch(rows: int = 256, width: int = 32) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1))


def step(model: nn.Module, x: torch.Tensor) -> int:
    """One training step; the peak it took."""
    model.zero_grad()
    with reprise.memory.measure() as memory:
        model(x).pow(2).mean().backward()
    return memory.peak


# Planning without running.
def test_a_plan_runs_nothing_and_predicts_what_a_step_takes():
    model, x = stack(drop=0.2), batch()
    before = torch.get_rng_state()
    planned = reprise.plan(model, x, "50%", **QUICK)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in model.parameters())
    compiled = reprise.compile(model, "50%", **QUICK)
    step(compiled, x)
    assert compiled.report().overhead == pytest.approx(planned.overhead, abs=0.05)
    assert planned.predicted_bytes < planned.plain_bytes


def test_a_sweep_gives_less_memory_for_more_time():
    found = reprise.sweep(stack(), batch(), budgets=10, **QUICK)
    assert len(found) == 10
    assert [p.predicted_bytes for p in found] == sorted(p.predicted_bytes for p in found)
    assert [p.cost for p in found] == sorted((p.cost for p in found), reverse=True)
    assert found[0].predicted_bytes < 0.8 * found[-1].predicted_bytes


def test_the_largest_batch_trains_inside_the_budget():
    model = stack()
    budget = reprise.memory.in_use() + (1 << 20)
    rows = reprise.max_batch(model, batch(64), budget, **QUICK)
    plain = ((1 << 20) - 8 * 32 * 33 * 4) // (17 * 32 * 4)  # 8 × (linear, gelu) and the input, kept: gradients aside
    assert rows > plain
    x = batch(rows)
    compiled = reprise.compile(model, budget + 64, **QUICK)
    assert step(compiled, x) <= budget + 64


def test_a_graph_and_a_plan_are_files_that_the_program_reads(tmp_path):
    graph, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    reprise.plan(stack(), batch(), "50%", **QUICK).save(graph, plan)
    program = os.path.join(os.path.dirname(reprise.__file__), "bin", "reprise")
    said = subprocess.run([program, "check", graph, plan], capture_output=True, text=True)
    assert said.returncode == 0 and said.stdout.startswith("right:")


def test_a_plan_from_a_file_runs(tmp_path):
    reprise.plan(stack(), batch(), "50%", **QUICK).save(tmp_path / "graph.json", tmp_path / "plan.json")
    compiled = reprise.compile(stack(), plan=tmp_path / "plan.json")
    step(compiled, batch())
    assert json.loads(compiled.plan)["steps"] == json.loads((tmp_path / "plan.json").read_text())["steps"]
    assert compiled.report().recomputed


@pytest.mark.parametrize(("other", "says"), [
    (lambda: stack(width=64), "is for graph"), (lambda: stack(layers=3), "is for graph")])
def test_a_plan_for_another_graph_is_refused(tmp_path, other, says):
    reprise.plan(stack(), batch(), "50%", **QUICK).save(tmp_path / "graph.json", tmp_path / "plan.json")
    model = other()
    with pytest.raises(reprise.PlanMismatch, match=says):
        reprise.compile(model, plan=tmp_path / "plan.json")(batch(width=model[0][0].in_features))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "reprise-plan", "version": 1, "steps": [["compute", "no"]]}'])
def test_a_file_that_is_no_plan_is_refused(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(reprise.PlanMismatch):
        reprise.compile(stack(), plan=tmp_path / "plan.json")(batch())


# Executors, costs, the backend.
@pytest.mark.parametrize("name", ["resnet", "mobilenet", "encoder layer", "checkpointed", "gru"])
def test_the_fx_executor_trains_bit_for_bit_as_well(name):
    case = CASES[name]
    plain, model = twins(case)
    compiled = reprise.compile(model, "min", executor="fx", **QUICK)
    assert (found := difference(train(plain, case), train(compiled, case))) is None, found


def test_estimated_costs_run_nothing_and_plan_alike():
    planned = reprise.plan(stack(), batch(), "50%", costs="flops", **QUICK)
    assert json.loads(planned.graph)["cost_unit"] == "flops"
    assert 0 < planned.overhead < 0.5


def test_torch_compile_knows_the_backend():
    model, plain, x = stack(), stack(), batch()
    options = {"budget": "50%", **QUICK}
    compiled = torch.compile(model, backend="reprise", options=options)
    assert step(compiled, x) < step(plain, x)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters()))


# Budgets.
@pytest.mark.parametrize(("budget", "says"), [
    ("6 gigs", "6 gigs"), (0, "above 0"), (-5, "-5"), ("0%", "more than 0"), ("-3%", "-3%"), ("", "want bytes"),
    (None, "want bytes"), (1.5, "want bytes"), (True, "want bytes")])
def test_a_budget_that_makes_no_sense_is_refused_in_a_sentence(budget, says):
    with pytest.raises(reprise.BudgetError, match=says) as error:
        reprise.compile(stack(), budget)
    assert "\n" not in str(error.value)


def test_parameters_that_exceed_the_budget_are_said_to():
    with pytest.raises(reprise.InfeasibleBudget, match="before the step begins"):
        reprise.compile(stack(), "1KiB")(batch())


def test_an_infeasible_budget_names_one_that_is_not():
    model, x = stack(), batch()
    with pytest.raises(reprise.InfeasibleBudget) as error:
        reprise.compile(model, reprise.memory.in_use() + 100_000, **QUICK)(x)
    smallest = error.value.smallest
    del error
    assert step(reprise.compile(model, smallest + 100, **QUICK), x) <= smallest + 100


def test_a_budget_in_bytes_holds_when_the_optimizer_takes_its_part():
    plain, x = stack(), batch(1024)
    optimizer = torch.optim.Adam(plain.parameters())
    for _ in range(2):
        most = step(plain, x)
        optimizer.step()
    del plain, optimizer
    model = stack()
    compiled = reprise.compile(model, int(0.7 * most), **QUICK)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        assert step(compiled, x) <= int(0.7 * most)
        optimizer.step()


def test_an_input_on_another_device_is_refused():
    with pytest.raises(reprise.RepriseError, match="an input is on meta, the model on cpu"):
        reprise.compile(stack(), "50%")(batch().to("meta"))


def test_the_whole_plan_costs_nothing_and_takes_no_more_than_plain():
    x, plain = batch(), stack()
    reference = [step(plain, x) for _ in range(3)][-1]
    del plain
    compiled = reprise.compile(stack(), "100%", **QUICK)
    assert [step(compiled, x) for _ in range(3)][-1] <= reference + 4096
    assert compiled.report().overhead == 0


# Graph breaks.
class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = stack(), stack(drop=0.1)

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_a_broken_graph_shares_the_budget(share):
    x, plain = batch(1024), Broken()
    most = [step(plain, x) for _ in range(2)][-1]
    gradients = [p.grad.clone() for p in plain.parameters()]
    del plain
    torch.manual_seed(0)
    model = Broken()
    compiled = reprise.compile(model, int(share * most), **QUICK)
    peaks = [step(compiled, x) for _ in range(4)]
    assert max(peaks) <= int(share * most)
    assert compiled._reprise_state.last.captures == 2
    assert len(gradients) == len(list(model.parameters()))


# The cache.
def test_the_cache_keeps_what_it_is_told_for_the_next_process(tmp_path):
    first = Cache(tmp_path)
    first.put("a", [1, 2])
    assert Cache(tmp_path).get("a") is None  # not saved yet
    first.save()
    assert Cache(tmp_path).get("a") == [1, 2]


def test_a_cache_that_can_not_be_written_warns_and_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="can't be written"):
        cache = Cache(tmp_path / "file")
    cache.put("a", 1)
    cache.save()
    assert cache.get("a") == 1


def test_a_torn_cache_warns_and_goes_on(tmp_path):
    (tmp_path / "cache.sqlite").write_bytes(b"no database" * 100)
    with pytest.warns(UserWarning):
        cache = Cache(tmp_path)
    cache.put("a", 1)
    cache.save()
    assert cache.get("a") == 1


def _fill(folder, name: str) -> None:
    cache = Cache(folder)
    for i in range(50):
        cache.put(f"{name} {i}", i)
        cache.save()


def test_two_processes_share_a_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(tmp_path, name)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    cache = Cache(tmp_path)
    assert all(cache.get(f"{name} {i}") == i for name in "ab" for i in range(50))


def test_a_process_killed_while_it_writes_leaves_a_cache_that_reads(tmp_path):
    code = f"from reprise.cache import Cache\nc = Cache({str(tmp_path)!r})\ni = 0\nwhile True:\n    c.put(str(i), i); c.save(); i += 1; print(i, flush=True)"  # noqa: E501
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for _ in range(20):
        process.stdout.readline()
    process.kill()
    process.wait()
    assert all(Cache(tmp_path).get(str(i)) == i for i in range(20))


# Measuring.
def test_measure_counts_what_tensors_take():
    with reprise.memory.measure() as memory:
        a = torch.empty(1 << 20, dtype=torch.uint8)
        b = torch.empty(1 << 19, dtype=torch.uint8)
        del a, b
    assert memory.extra == (1 << 20) + (1 << 19)


def test_a_model_made_before_the_import_counts_too():
    code = ("import torch\nm = torch.nn.Linear(1000, 1000)\nimport reprise\n"
            "c = reprise.compile(m, '100%')\nc(torch.randn(8, 1000)).sum().backward()\n"
            "print(c.report().resident_bytes)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) >= 4 * 1_001_000


def test_compiling_wants_a_module():
    with pytest.raises(TypeError, match="nn.Module"):
        reprise.compile(lambda x: x)
    assert isinstance(reprise.compile(mlp(), "min"), nn.Module)
