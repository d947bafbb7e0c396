# SPDX-License-Identifier: Apache-2.0
"""The captured graphs of a model, and the budget that they share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Callable

import torch

from . import _core, memory
from .budget import Budget, parse_budget
from .chooser import loosest
from .errors import InfeasibleBudget
from .planner import Plan, Search
from .subgraph import Subgraph


@dataclass
class Options:
    budget: int | str = "auto"
    costs: str = "profile"
    executor: str = "native"
    search: Search = field(default_factory=Search)
    name: str = "model"
    plan_file: str | None = None

    def __post_init__(self):
        if self.costs not in ("profile", "flops"):
            raise ValueError(f"costs={self.costs!r}: want 'profile' or 'flops'")
        if self.executor not in ("native", "fx"):
            raise ValueError(f"executor={self.executor!r}: want 'native' or 'fx'")
        parse_budget(self.budget, free=1)


class Session:
    """The captured graphs of one module, or of one torch.compile call, under one budget."""

    def __init__(self, options: Options):
        self.options = options
        self.subgraphs: list[Subgraph] = []
        self.captures = 0
        self.calls = 0  # of captured graphs
        self.is_trivial = False  # a graph was found that has nothing to train
        self.is_broken = False  # the model is more than one graph
        self.outstanding = 0  # forwards whose backward is not over
        self.started = 0  # bytes in use when the step began
        self.ran: list[Subgraph] = []  # whose forwards ran in this step, in order
        self.forwards: Counter[Subgraph] = Counter()  # of each, in this step
        self.refusal: InfeasibleBudget | None = None  # found out at the end of a step, raised by the next
        self.shares: dict[Subgraph, int] | None = None  # of a broken model: bytes for each graph's own plan

    def backend(self, module: torch.fx.GraphModule, inputs: list) -> Callable:
        """What Dynamo asks for each graph that it finds."""
        if not torch.is_grad_enabled() or not any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs):
            self.is_trivial = True
            return module.forward
        self.captures += 1
        reason = getattr(module, "compile_subgraph_reason", None)
        self.is_broken |= reason is not None and reason.graph_break
        subgraph = Subgraph(self, module, inputs)
        if not subgraph.is_differentiable:
            self.is_trivial = True
            return module.forward
        self.subgraphs.append(subgraph)
        self.shares = None
        return subgraph

    def budget(self, device: torch.device) -> Budget:
        if self.options.budget != "auto":
            return parse_budget(self.options.budget)
        return parse_budget("auto", free=memory.in_use(device) + int(0.95 * memory.free(device)))

    def begin(self, subgraph: Subgraph, started: int) -> None:
        if self.outstanding == 0:
            self.started, self.ran = started, []
            self.forwards.clear()
        self.outstanding += 1
        self.forwards[subgraph] += 1
        if subgraph not in self.ran:
            self.ran.append(subgraph)

    def end(self) -> None:
        self.outstanding -= 1
        if self.outstanding:
            return
        for subgraph in self.ran:
            subgraph.chooser.forwards = self.forwards[subgraph]
        if self.is_broken:
            self._end_broken()

    def _end_broken(self) -> None:
        """All graphs of a step have run: divides the budget among them, once, and says what they take together."""
        ran = self.ran
        for graph in ran[:-1]:  # what comes between its forward and its backward is the next graphs', counted there
            if not graph.facts.step.knows_outside:
                graph.facts.step.set_outside(0, 0)
                graph.facts.step.knows_outside = True
        left = self._left(ran)
        if left is not None and (self.shares is None or not all(graph in self.shares for graph in ran)):
            self._divide(ran, left)
        facts = ran[0].facts  # its forward is the first, its backward the last: it measures the whole step
        facts.predicted = self.started + _together(ran, {g: g.facts.plan for g in ran})
        facts.budget = None if left is None else self.started + left

    def _left(self, ran: list[Subgraph]) -> int | None:
        """Bytes for the step, over what is there when it begins; None: the smallest."""
        budget = self.budget(ran[0].facts.step.device)
        if budget.bytes is not None:
            return budget.bytes - self.started
        if budget.share is None:
            return None
        gradients = sum(g.facts.step.gradient_bytes for g in ran)
        plain = _together(ran, {g: g.facts.step.plain() for g in ran}) - gradients
        return gradients + int(plain * budget.share)

    def _divide(self, ran: list[Subgraph], left: int) -> None:
        """All are loosened alike from their smallest peaks towards plain, as far as it fits together."""
        smallest = {graph: graph.facts.plan.peak for graph in ran}
        together = _together(ran, {graph: graph.facts.plan for graph in ran})
        if together > left:
            needed = self.started + together
            self.refusal = InfeasibleBudget(
                f"budget {_core.to_words(self.started + left)} can't be met: the model's {len(ran)} graphs take "
                f"{_core.to_words(needed)} together at the least ({needed} bytes)", needed)
            return
        search = self.options.search.briefly()

        def attempt(share: float) -> dict[Subgraph, int] | None:
            asked = {g: int(smallest[g] + share * max(0, g.facts.step.graph.base_peak - smallest[g])) for g in ran}
            plans = {g: g.facts.step.plan_within(asked[g], search)[0] for g in ran}
            return asked if all(plans.values()) and _together(ran, plans) <= left else None

        self.shares = loosest(attempt) or smallest


def _together(graphs: list[Subgraph], plans: dict[Subgraph, Plan]) -> int:
    """The peak of graphs whose forwards run in this order: what earlier ones keep and the gradients that later ones
    have made are there as well."""
    kept = [plans[g].kept(g.facts.step) for g in graphs]
    gradients = [g.facts.step.gradient_bytes for g in graphs]
    return max(sum(kept[:i]) + plans[g].peak + sum(gradients[i + 1:]) for i, g in enumerate(graphs))
