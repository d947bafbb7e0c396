# SPDX-License-Identifier: Apache-2.0
"""Budgets: which there are, that they are kept from the first step on, and what is said where one can't be."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

import reprise
from exactness import batch, compiled, peak_of_a_step, stack
from reprise import planner
from reprise.budget import Budget
from reprise.solving import Search


@pytest.mark.parametrize(("budget", "says"), [
    ("6 gigs", "6 gigs"), ("many", "many"), (0, "above 0"), (-5, "-5"), ("-3", "-3"), ("0%", "more than 0"),
    ("-3%", "-3%"), ("", "want bytes"), (None, "want bytes"), (1.5, "want bytes"), (True, "want bytes")])
def test_a_budget_that_makes_no_sense_is_refused_in_a_sentence(budget, says):
    with pytest.raises(reprise.BudgetError, match=says) as error:
        compiled(stack(), budget)
    assert "\n" not in str(error.value)


def test_parameters_that_exceed_the_budget_are_said_to():
    with pytest.raises(reprise.InfeasibleBudget, match="in use before the step begins"):
        compiled(stack(), "1KiB")(batch(1, 256, 32))


def test_an_infeasible_budget_names_one_that_is_not():
    model, x = stack(), batch(1, 256, 32)
    gc.collect()  # else there may be less in use by the time that the step begins
    with pytest.raises(reprise.InfeasibleBudget) as error:
        compiled(model, reprise.memory.in_use() + 100_000)(x)
    smallest = error.value.smallest
    del error
    assert peak_of_a_step(compiled(model, smallest + 100), x) <= smallest + 100


def test_what_is_told_to_be_the_smallest_can_be_met_where_a_margin_is_kept(monkeypatch):
    """As on a GPU."""
    monkeypatch.setattr(planner.TrainingStep, "margin", lambda self, by_graphs: Fraction(9, 10))
    model, x = stack(), batch(1, 256, 32)
    with pytest.raises(reprise.InfeasibleBudget, match="the smallest plan found takes") as error:
        compiled(model, "10%")(x)
    share = re.search(r"takes ([\d.]+)%", str(error.value))[1]
    del error
    compiled(model, f"{share}%")(x).sum().backward()
    gc.collect()
    with pytest.raises(reprise.InfeasibleBudget) as error:
        compiled(model, reprise.memory.in_use() + 100_000)(x)
    smallest = error.value.smallest
    del error
    compiled(model, smallest + 100)(x).sum().backward()


def test_a_budget_in_bytes_holds_when_the_optimizer_takes_its_part():
    def peaks(model, face, steps):
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(steps):
            yield peak_of_a_step(face, x)
            optimizer.step()

    x, plain = batch(1, 1024, 32), stack()
    budget = int(0.7 * max(peaks(plain, plain, 2)))
    del plain
    model = stack()
    assert max(peaks(model, compiled(model, budget), 4)) <= budget


def test_the_whole_plan_costs_nothing_and_takes_no_more_than_plain():
    x, plain = batch(1, 256, 32), stack()
    reference = [peak_of_a_step(plain, x) for _ in range(3)][-1]
    del plain
    face = compiled(stack(), "100%")
    assert [peak_of_a_step(face, x) for _ in range(3)][-1] <= reference + 4096
    assert face.report().overhead == 0


def test_a_device_that_runs_out_of_memory_by_all_plans_is_told_of():
    face, x = compiled(stack(), "80%"), batch(1, 256, 32)
    face(x).sum().backward()
    subgraph, plan = face._reprise_state.last.ran[-1], face._reprise_state.facts[0].plan
    for _ in range(20):
        subgraph.chooser.tighten(plan)
    told = r"the device ran out of memory, and no plan of [\d.]+ \w+ was found; the smallest plan found takes [\d.]+ KiB"
    with pytest.raises(reprise.InfeasibleBudget, match=told):
        face(x)


def test_an_input_on_another_device_is_refused():
    with pytest.raises(reprise.RepriseError, match="an input is on meta, the model on cpu"):
        compiled(stack(), "50%")(batch(1, 256, 32).to("meta"))


def test_a_model_without_memory_is_refused():
    with pytest.raises(reprise.RepriseError, match="the model is on the meta device, where nothing runs"):
        reprise.plan(stack().to("meta"), batch(1, 256, 32).to("meta"), "min")


@pytest.mark.parametrize("times_less", [10, 1.5])
def test_the_smallest_peak_is_not_had_at_any_price(times_less, monkeypatch):
    """Here plans for it are said to take many times more than for a budget."""
    def asked(self, budget, search):
        plan, answer = ask(self, budget, search)
        budgets.append(budget)
        return replace(plan, cost=(10 if budget is None else 10 / times_less) * self.graph.base_cost), answer

    face = compiled(stack(), "100%")
    face(batch(1, 256, 32)).sum().backward()
    ask, budgets = planner.TrainingStep.plan_within, []
    monkeypatch.setattr(planner.TrainingStep, "plan_within", asked)
    step, search = face._reprise_state.facts[0].step, Search(seconds=None, iterations=200)
    plan, _ = step.plan_smallest(search)
    smallest, _ = ask(step, None, search)
    tried = [int(share * smallest.peak) for share in ((1.02,) if times_less == 10 else (1.02, 1.05, 1.1))]
    assert budgets == [None, *tried]
    assert plan.budget == budgets[times_less == 10]


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


def test_a_step_that_graphs_follow_leaves_room_where_it_can(monkeypatch):
    """Three percent of what it may take."""
    face = compiled(stack())
    face(batch(1, 256, 32)).sum().backward()
    step, subgraph = face._reprise_state.facts[0].step, face._reprise_state.last.ran[-1]
    subgraph.facts, base, smallest = None, step.graph.base_peak, step.plan_within(None, Search(iterations=500))[0].peak
    for budget, most in ((Budget("100%", share=Fraction(1)), 0.97 * base + step.gradient_bytes),
                         (Budget("bytes", bytes=base), 0.97 * base), (Budget("bytes", bytes=smallest), smallest)):
        monkeypatch.setattr(subgraph.session, "budget", lambda _: budget)
        assert subgraph.chooser.choose(step, 0, for_once=True).peak <= most
