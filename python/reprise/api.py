# SPDX-License-Identifier: Apache-2.0
"""Planning without training: reprise.plan, reprise.sweep."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable

from torch import nn

from .dynamo import capture_call
from .module import plain_of
from .planner import Plan, TrainingStep
from .session import Options
from .subgraph import Subgraph
from .words import bytes_words


@dataclass
class Planned:
    """A plan that was not run. Bytes are of the device: what is there now, and the step's."""

    budget: str
    predicted_bytes: int
    resident_bytes: int
    plain_bytes: int
    cost: int
    base_cost: int
    lower_bound: int | None
    status: str
    graph: str  # reprise-graph JSON
    plan: str  # reprise-plan JSON

    @property
    def overhead(self) -> float:
        return self.cost / self.base_cost - 1

    def save(self, graph_path: str | os.PathLike, plan_path: str | os.PathLike) -> None:
        """As files that the program `reprise` reads, and reprise.compile(model, plan=…)."""
        for path, text in ((graph_path, self.graph), (plan_path, self.plan)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def __str__(self) -> str:
        bound = ""
        if self.lower_bound is not None:
            bound = f"; no plan needs less than {self.lower_bound / self.base_cost - 1:+.2%}"
        peak, plain = bytes_words(self.predicted_bytes), bytes_words(self.plain_bytes)
        return f"budget {self.budget}: peak {peak} of {plain} plain, time {self.overhead:+.2%}{bound}"


def plan(model: nn.Module, example: Any, budget: int | str = "auto", *, loss: Callable | None = None,
         costs: str = "profile", plan_seconds: float | None = 5.0, plan_iterations: int | None = None,
         seed: int = 0, threads: int = 1, exact: bool = False) -> Planned:
    """Plans a training step of `model` on `example` (an input, or a tuple of them) without running the model."""
    options = options_for(model, budget, costs=costs, plan_seconds=plan_seconds, plan_iterations=plan_iterations,
                          seed=seed, threads=threads, exact=exact)
    subgraph, step, started = captured(model, example, loss, options)
    return _planned(str(budget), step, subgraph.chooser.choose(step, started), started)


def sweep(model: nn.Module, example: Any, *, budgets: int = 10, loss: Callable | None = None, costs: str = "profile",
          plan_seconds: float | None = 2.0, plan_iterations: int | None = None, seed: int = 0,
          threads: int = 1, exact: bool = False) -> list[Planned]:
    """Plans from the smallest peak there is to the plain step's: less memory never takes less time."""
    options = options_for(model, "min", costs=costs, plan_seconds=plan_seconds, plan_iterations=plan_iterations,
                          seed=seed, threads=threads, exact=exact)
    if budgets < 1:
        raise ValueError(f"budgets={budgets}: want at least 1")
    subgraph, step, started = captured(model, example, loss, options)
    smallest = subgraph.chooser.choose(step, started)
    top = step.graph.base_peak
    sizes = [smallest.peak + (top - smallest.peak) * i // (budgets - 1) for i in range(1, budgets)]
    plans = [step.plan_within(size, options.search)[0] for size in sizes]
    plans = [smallest, *(p for p in plans if p is not None)]
    chosen: list[Planned] = []
    for size in [smallest.peak, *sizes]:
        best = min((p for p in plans if p.peak <= size), key=lambda p: (p.cost, p.peak))
        chosen.append(_planned(bytes_words(started + size), step, best, started))
    return chosen


def options_for(model: nn.Module, budget: int | str, **others) -> Options:
    """Options where a step is planned and not run."""
    return Options(budget, name=type(plain_of(model)).__name__, **others)


def captured(model: nn.Module, example: Any, loss: Callable | None,
             options: Options) -> tuple[Subgraph, TrainingStep, int]:
    """Captures without running. What is in use when a step would begin comes with it."""
    args = example if isinstance(example, tuple) else (example,)
    subgraph = capture_call(plain_of(model), loss, options, args)
    step = subgraph.step()
    return subgraph, step, subgraph.in_use(step)


def _planned(budget: str, step: TrainingStep, made: Plan, started: int) -> Planned:
    return Planned(budget, started + made.peak, started, started + step.graph.base_peak, made.cost,
                   step.graph.base_cost, made.lower_bound, made.status, step.graph_of(made).to_json(),
                   step.graph_of(made).write_plan(made.steps, "auto"))
