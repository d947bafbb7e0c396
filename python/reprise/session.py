# SPDX-License-Identifier: Apache-2.0
"""The captured graphs of a model, and the budget that they share."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Callable

import torch

from . import memory
from .budget import Budget, parse_budget
from .errors import CaptureError
from .graphs import GraphMemories
from .several import Shares, note_together
from .solving import Search
from .subgraph import Subgraph


@dataclass(frozen=True)
class Options:
    """As they are given to reprise.compile, plan, sweep and max_batch, and to the backend."""

    budget: int | str = "auto"
    costs: str = "profile"
    executor: str | None = None  # CUDA graphs on CUDA where that can be, else native
    plan_seconds: float | None = 5.0
    plan_iterations: int | None = None
    seed: int = 0
    threads: int = 1
    name: str = "model"
    plan_file: str | None = None
    exact: bool = False

    def __post_init__(self):
        if self.costs not in ("profile", "flops"):
            raise ValueError(f"costs={self.costs!r}: want 'profile' or 'flops'")
        if self.executor not in (None, "native", "cuda_graph", "fx"):
            raise ValueError(f"executor={self.executor!r}: want 'native', 'cuda_graph', 'fx' or None")
        if not isinstance(self.exact, bool):
            raise ValueError(f"exact={self.exact!r}: want True or False")
        if self.plan_seconds is not None and not self.plan_seconds > 0:
            raise ValueError(f"plan_seconds={self.plan_seconds}: want more than 0, or None")
        for name, least in (("plan_iterations", 1), ("seed", 0), ("threads", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value}: want at least {least}")
        parse_budget(self.budget, free=1)

    @property
    def search(self) -> Search:
        return Search(self.plan_seconds, self.plan_iterations, self.seed, self.threads)


class Handed(threading.local):
    """What graphs were called with in this thread's last step, where a module asks."""

    tensors: list[weakref.ref] | None = None


class Session:
    """The captured graphs of one module, or of one torch.compile call, under one budget."""

    def __init__(self, options: Options, graph_memories: GraphMemories | None = None):
        self.options = options
        self.graph_memories = graph_memories or GraphMemories()
        self.subgraphs: list[Subgraph] = []
        self.captures = 0
        self.handed = Handed()
        self.is_trivial = False  # a graph was found that has nothing to train
        self.is_broken = False  # Dynamo could not make one graph of the model
        self.is_several = False  # a step runs more than one graph before its backward
        self.open: list[Subgraph] = []  # whose forwards ran and whose backwards are not over
        self.started = 0  # bytes in use when the step began
        self.ran: list[Subgraph] = []  # whose forwards ran in this step, in order, each as often as it did
        self._shares = Shares(options.search.briefly())  # of several graphs
        self._budget: Budget | None = None

    def backend(self, module: torch.fx.GraphModule, inputs: list) -> Callable:
        """What Dynamo asks for each graph that it finds."""
        if not torch.is_grad_enabled() or not any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs):
            self.is_trivial = True
            return module.forward
        if any(isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) for value in inputs):
            raise CaptureError("Dynamo hands over numbers and sizes that may change, and a plan is for one size: "
                               "say torch.compile(…, dynamic=False)")
        self.captures += 1
        reason = getattr(module, "compile_subgraph_reason", None)
        self.is_broken |= reason is not None and reason.graph_break
        self.is_several |= self.is_broken
        if self.is_broken and self.options.executor == "fx":
            raise CaptureError(f'executor="fx" runs models that are one graph; this one breaks: {reason.reason}')
        subgraph = Subgraph(self, module, inputs)
        if not subgraph.is_differentiable:
            self.is_trivial = True
            return module.forward
        return self.add(subgraph)

    def add(self, subgraph: Subgraph) -> Subgraph:
        self.subgraphs.append(subgraph)
        self._shares.forget()
        return subgraph

    def release(self) -> None:
        """Gives back what graphs hold."""
        for subgraph in self.subgraphs:
            subgraph.release()

    def budget(self, device: torch.device) -> Budget:
        """"auto" is what was free when it was first asked for."""
        if self._budget is None:
            free = memory.in_use(device) + int(0.95 * memory.free(device))
            self._budget = parse_budget(self.options.budget, free)
        return self._budget

    def begin(self, subgraph: Subgraph, started: int) -> None:
        if len(self.open) < len(self.ran):  # a backward has ended since: a new step, whatever else is still held
            self.started, self.ran = started, list(self.open)
        elif not self.open:
            self.started = started
        self.open.append(subgraph)
        self.ran.append(subgraph)

    def become_several(self) -> None:
        """The model is one graph, but in several forms (its input has a gradient or has none) before one backward."""
        self.is_several = True
        for subgraph in set(self.ran):
            for begun in subgraph.begun:
                begun.shed()

    def end(self, subgraph: Subgraph) -> None:
        self.open.remove(subgraph)
        if self.open:
            return
        for each, forwards in Counter(self.ran).items():
            each.chooser.forwards = forwards
        if self.is_several:
            note_together(self.ran, self._budget_of_the_step(), self.started)

    def share(self, subgraph: Subgraph, started: int) -> int | None:
        """Of several graphs: bytes for one's own plan; None: the smallest."""
        if not self.open and self.ran:
            self._shares.divide(self.ran, self._budget_of_the_step(), started)
        return self._shares.of(subgraph)

    def _budget_of_the_step(self) -> Budget:
        return self.budget(self.ran[0].facts.step.device)
