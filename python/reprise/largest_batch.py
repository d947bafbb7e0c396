# SPDX-License-Identifier: Apache-2.0
"""reprise.max_batch: the largest batch that trains inside a budget."""

from __future__ import annotations

import copy
import gc
import json
import math
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import nn

from . import _core
from .api import captured, options_for
from .budget import parse_budget
from .errors import CaptureError, InfeasibleBudget, RepriseError
from .planner import TrainingStep
from .session import Options, Session
from .subgraph import Subgraph

# An answer that is so many times as large as what was captured is captured, and asked for again, so often.
_FAR, _MOST_CAPTURES = 2, 2


def max_batch(model: nn.Module, example: Any, budget: int | str, *, loss: Callable | None = None,
              most_overhead: float | None = None, costs: str = "profile", plan_seconds: float | None = 2.0,
              plan_iterations: int | None = None, seed: int = 0, threads: int = 1, exact: bool = False) -> int:
    """The largest batch that trains inside `budget`, at most `most_overhead` (0.3: 30 %) slower where that is given.

    The batch is the first dimension that all tensors of `example` share. Two sizes are captured, others follow from
    them on straight lines; where the answer is far from both, it is captured, too. The answer is planned for real.
    """
    options = options_for(model, budget, costs=costs, plan_seconds=plan_seconds, plan_iterations=plan_iterations,
                          seed=seed, threads=threads, exact=exact)
    if parse_budget(budget, free=1).bytes is None:
        raise RepriseError("max_batch wants a budget in bytes, or 'auto'")
    if most_overhead is not None and not most_overhead >= 0:
        raise ValueError(f"most_overhead={most_overhead}: want at least 0, or None")
    given = _batch_of(example)
    gc.collect()  # else what is in use may become less between two captures
    question = _BatchQuestion(model, example, given, loss, options, most_overhead)
    largest = question.largest_on_the_lines(max(2, given))
    for _ in range(_MOST_CAPTURES):
        if largest <= _FAR * question.reach:
            break
        question.reach_for(largest)
        largest = question.largest_on_the_lines(largest)
    while largest > 0 and not question.fits(largest):
        largest = largest - max(1, largest // 50)
    if largest <= 0:
        within = "" if most_overhead is None else f" with an overhead of {100 * most_overhead:g} % at most"
        raise InfeasibleBudget(f"budget {budget} can't be met{within} even at batch 1")
    return largest


def largest_that_fits(fits: Callable[[int], bool], near: int) -> int:
    """The largest batch that does, as if all smaller ones did, or 0; looking begins at `near`."""
    low, high = 0, max(1, near)
    while fits(high):
        low, high = high, high * 2
        if high > 1 << 24:
            raise RepriseError("nothing in the model grows with the batch")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass
class _AtBatch:
    """A step as captured at one batch."""

    batch: int
    subgraph: Subgraph
    step: TrainingStep
    started: int  # bytes in use when it begins

    @property
    def graph(self) -> dict:
        return self.step.lowered.graph

    def is_like(self, other: "_AtBatch") -> bool:
        """In all but sizes."""
        return _shape(self.graph) == _shape(other.graph)


class _BatchQuestion:
    """What fits at a batch, on straight lines through a step as captured at two batches."""

    def __init__(self, model, example, given: int, loss, options: Options, most_overhead: float | None):
        self._model, self._example, self._given, self._loss = model, example, given, loss
        self._options, self._most_overhead = options, most_overhead
        self._found: list[list[int]] = []  # plans, the last ones first
        self._near = self._far = self._capture(max(2, given))
        self._budget = Session(options).budget(self._near.step.device).bytes
        self.reach_for(2 * self._near.batch)

    @property
    def reach(self) -> int:
        """The larger of the two batches."""
        return self._far.batch

    def reach_for(self, batch: int) -> None:
        """The lines go up to this batch from now on: from the one before or, where the step is another one there, from
        half of it."""
        near, self._far = self._far, self._capture(batch)
        if not near.is_like(self._far):
            near = self._capture(batch // 2)
            self._found.clear()
        if not near.is_like(self._far):
            raise CaptureError("the model's graph changes with the batch: max_batch needs one that only grows")
        self._near = near

    def _capture(self, batch: int) -> _AtBatch:
        example = _at_batch(self._example, self._given, batch)
        return _AtBatch(batch, *captured(self._model, example, self._loss, self._options))

    def largest_on_the_lines(self, guess: int) -> int:
        return largest_that_fits(self._fits_on_the_lines, guess)

    def _fits_on_the_lines(self, batch: int) -> bool:
        near, far = self._near, self._far
        graph = copy.deepcopy(near.graph)

        def at(x, y):
            return max(0, x + (y - x) * (batch - near.batch) // (far.batch - near.batch))

        for value, a, b in zip(graph["values"], near.graph["values"], far.graph["values"]):
            value["bytes"] = at(a["bytes"], b["bytes"])
        for op, a, b in zip(graph["ops"], near.graph["ops"], far.graph["ops"]):
            op["cost"] = max(1, at(a["cost"], b["cost"]))
            op["workspace"] = at(a.get("workspace", 0), b.get("workspace", 0))
        near_least = near.step.least_workspace()
        for op, least in far.step.least_workspace().items():
            graph["ops"][op]["workspace"] = at(near_least.get(op, least * near.batch // far.batch), least)
        left = at(*(end.step.room_in(self._budget - end.started) for end in (near, far)))
        return left > 0 and self._solve(_core.Graph(json.dumps(graph)), left)

    def _solve(self, graph: _core.Graph, left: int) -> bool:
        """Where no plan that was found for another batch does, one is looked for."""
        most = math.inf if self._most_overhead is None else (1 + self._most_overhead) * graph.base_cost
        for steps in self._found:
            replayed = graph.replay(steps)
            if replayed["peak_bytes"] <= left and replayed["cost"] <= most:
                return True
        search = self._options.search.briefly()
        answer = graph.solve(left, seconds=search.seconds, iterations=search.iterations, gap=0.05, seed=search.seed)
        if answer["steps"] is None or answer["cost"] > most:
            return False
        self._found = [answer["steps"], *self._found[:3]]
        return True

    def fits(self, batch: int) -> bool:
        try:
            found = self._capture(batch)
            made = found.subgraph.chooser.choose(found.step, found.started)
        except InfeasibleBudget:
            return False
        return self._most_overhead is None or made.cost <= (1 + self._most_overhead) * found.step.graph.base_cost


def _shape(graph: dict) -> list:
    return [(op["name"], op["inputs"], op["outputs"]) for op in graph["ops"]]


def _batch_of(example: Any) -> int:
    tensors = [t for t in torch.utils._pytree.tree_leaves(example) if isinstance(t, torch.Tensor) and t.dim()]
    sizes = {t.shape[0] for t in tensors}
    if len(sizes) != 1:
        raise RepriseError(f"the example's tensors have first dimensions {sorted(sizes)}: want one batch size")
    if sizes == {0}:
        raise RepriseError("the example is a batch of none: want at least one")
    return sizes.pop()


def _at_batch(example: Any, given: int, batch: int) -> Any:
    """The example with another batch; its rows repeated."""
    def resized(leaf):
        if not isinstance(leaf, torch.Tensor) or not leaf.dim() or leaf.shape[0] != given:
            return leaf
        return leaf[torch.arange(batch, device=leaf.device) % given]
    return torch.utils._pytree.tree_map(resized, example)
