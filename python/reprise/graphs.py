# SPDX-License-Identifier: Apache-2.0
"""When a captured graph's steps are run as CUDA graphs, and why not where they are not."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

import torch

from . import _torch
from .planner import Plan, TrainingStep

if TYPE_CHECKING:
    from .subgraph import Subgraph

log = logging.getLogger("reprise")

_WARM = 2  # steps of a plan that run as they are before it is recorded: libraries set themselves up, sizes are learned
_PLANS = 4  # whose graphs are kept: of first and of further micro-batches, for one
_PATIENCE = 3  # how often graphs are given up for something that may have been for once


class GraphMemories:
    """The memory of graphs by device. Steps of several shapes share it."""

    def __init__(self):
        self._memories: dict[torch.device, _torch.GraphMemory] = {}

    def on(self, device: torch.device) -> _torch.GraphMemory:
        if device not in self._memories:
            self._memories[device] = _torch.GraphMemory(device)
        return self._memories[device]

    def drop(self, device: torch.device) -> None:
        """For new graphs; what was recorded keeps its own."""
        self._memories.pop(device, None)


class Graphs:
    """The CUDA graphs of one captured graph, by plan."""

    def __init__(self, subgraph: "Subgraph"):
        self._subgraph, self._session = subgraph, subgraph.session
        self.reason: str | None = None  # why there are none
        self._graphed: OrderedDict[Plan, _torch.GraphedStep] = OrderedDict()
        self._copies: dict[int, torch.Tensor] = {}  # by input: where it is copied to
        self._seen_at: list[int] = []  # by input: where it lay in the last step
        self._given_up = 0
        self._may_add = True  # gradients to those that are there, which then have to lie still

    def of(self, step: TrainingStep, plan: Plan, tensors: list[torch.Tensor]) -> _torch.GraphedStep | None:
        """Those that are to run this step; None: it is run as it is."""
        if not self.are_wanted(step.device):
            return None
        if (reason := self._why_never(step, tensors)) is not None:
            self.turn_off(reason, step.device)
            return None
        pointers = [tensor.data_ptr() for tensor in tensors]
        seen_at, self._seen_at = self._seen_at, pointers
        if self._session.open or self._session.graph_memories.on(step.device).is_busy:
            self._give_up("several forwards run before a backward", step.device)
            return None
        if self._subgraph.steps_of(step, plan) < _WARM:
            return None
        known = self._graphed.get(plan)
        if known is not None:
            moved, self._may_add = known.moved(tensors), self._may_add and known.are_at_their_sums(tensors)
            if not moved and known.are_at_their_sums(tensors):
                self._graphed.move_to_end(plan)
                return known
            self._graphed.clear()
            seen_at = [-1 if i in moved else pointer for i, pointer in enumerate(pointers)]
            if any(_is_parameter(tensors[i]) for i in moved):
                self._give_up("parameters are replaced by others", step.device)
                return None
        return self._new(step, plan, tensors, [then == now for then, now in zip(seen_at, pointers)])

    def are_wanted(self, device: torch.device) -> bool:
        return device.type == "cuda" and self.reason is None and self._session.options.executor in (None, "cuda_graph")

    def _why_never(self, step: TrainingStep, tensors: list[torch.Tensor]) -> str | None:
        if self._session.is_several:
            return "the model is more than one graph"
        if any(tensor.device != step.device for tensor in tensors):
            return "an input is on another device"
        elsewhere = next((c for c in step.lowered.program.calls if c.device.type != "cuda"), None)
        return f"{elsewhere.where} runs on {elsewhere.device}" if elsewhere is not None else None

    def _new(self, step: TrainingStep, plan: Plan, tensors: list[torch.Tensor], lie_still: list[bool]):
        """Parameters, and what lies where it lay, are read there; all else is copied to where the graphs read it."""
        for i, (tensor, lies_still) in enumerate(zip(tensors, lie_still)):
            if not lies_still and not _is_parameter(tensor) and i not in self._copies:
                self._copies[i] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype,
                                                      device=tensor.device)
        try:
            graphed = _torch.GraphedStep(
                self._session.graph_memories.on(step.device), step.schedule(plan),
                [self._copies.get(i) for i in range(len(tensors))], self._subgraph.stay(step),
                [[] if strides is None else list(strides) for strides in step.case.strides], self._may_add)
        except RuntimeError as error:
            self.turn_off(str(error).splitlines()[0], step.device)
            return None
        torch.cuda.empty_cache()  # what steps before have left would lie beside the graphs' own memory
        torch._C._cuda_clearCublasWorkspaces()  # … and so would what graphs have of their own
        self._graphed[plan] = graphed
        while len(self._graphed) > _PLANS:
            self._graphed.popitem(last=False)
        return graphed

    def _give_up(self, reason: str, device: torch.device) -> None:
        """For now; for good, where it happens again and again."""
        if not self._graphed:
            return
        self._given_up += 1
        if self._given_up == _PATIENCE:
            self.turn_off(reason, device)
        else:
            self._drop(device)

    def turn_off(self, reason: str, device: torch.device) -> None:
        self.reason = reason.splitlines()[0]
        log.warning("CUDA graphs are not used: %s", self.reason)
        self._drop(device)
        self._subgraph.begin_anew()

    def _drop(self, device: torch.device) -> None:
        self._graphed.clear()
        self._copies.clear()
        self._session.graph_memories.drop(device)


def _is_parameter(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf
