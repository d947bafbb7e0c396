# SPDX-License-Identifier: Apache-2.0
"""When a captured graph's steps are run as CUDA graphs, and why not where they are not."""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import torch

from . import _torch
from .errors import RepriseError
from .planner import Plan, TrainingStep, most_waiting
from .words import first_line

if TYPE_CHECKING:
    from .subgraph import Subgraph

log = logging.getLogger("reprise")

_PLACES = 3  # where inputs may lie by turns, each with graphs of its own, before they are copied
_GRAPHS = 8  # that are kept: of first and of further micro-batches, for one
_PATIENCE = 3  # times that graphs are given up for one step before they are for good
_FORGIVING = 100  # graphed steps in a row after which earlier times no longer count
_MOST_PLANS = 8  # of a step that are recorded, before one is stayed with
_SMALL = 1 / 256  # of the plain step's peak: an input up to this is copied to where it is read, wherever it lies

Places = tuple[tuple[int, int], ...]  # inputs that are read where they lie, and their addresses


class _Memory(NamedTuple):
    pool: _torch.GraphMemory
    users: weakref.WeakSet[_torch.GraphedStep]


class GraphMemories:
    """The memory of graphs by device. Steps of several shapes share it, and it ends with the last of them."""

    def __init__(self):
        self._memories: dict[torch.device, _Memory] = {}
        self._begun: dict[torch.device, int] = {}  # bytes of the step that began last

    def is_busy(self, device: torch.device) -> bool:
        return device in self._memories and self._memories[device].pool.is_busy

    def begin(self, device: torch.device, size: int) -> None:
        """A step that takes so many bytes."""
        self._begun[device] = size

    def waiting(self, device: torch.device) -> int:
        """Bytes of a step that waits for its backward."""
        return self._begun.get(device, 0) if self.is_busy(device) else 0

    def settle(self, device: torch.device) -> None:
        """What callers hold of the graphs' memory becomes theirs, so that it is counted, and lies still."""
        if device in self._memories:
            self._memories[device].pool.settle()

    def clean(self, device: torch.device) -> None:
        """Ends the memory that nobody uses."""
        if device in self._memories and not self._memories[device].users:
            del self._memories[device]
            torch.cuda.empty_cache()

    def end(self, device: torch.device, graphed: _torch.GraphedStep) -> None:
        """Whoever still holds it, as the outputs of its last step do."""
        if graphed.end() and device in self._memories:
            self._memories[device].users.discard(graphed)

    def graphed(self, device: torch.device, *arguments) -> _torch.GraphedStep:
        if device not in self._memories or not self._memories[device].users:
            self._memories[device] = _Memory(_torch.GraphMemory(device), weakref.WeakSet())
        memory, users = self._memories[device]
        made = _torch.GraphedStep(memory, *arguments)
        users.add(made)
        return made

    def reserved(self, device: torch.device) -> int:
        """Bytes that the device holds for graphs."""
        if device not in self._memories:
            return 0
        segments = torch.cuda.memory_snapshot(self._memories[device].pool.pool_id)
        return sum(segment["total_size"] for segment in segments)


class Graphs:
    """The CUDA graphs of one captured graph, by plan and by where its inputs lie. For each step, in this order:
    empty_caches, are_due (which may give graphs up), pick_copied_inputs, graphed_step (which records what is missing)."""

    def __init__(self, subgraph: "Subgraph", device: torch.device):
        if subgraph.session.options.executor == "cuda_graph" and device.type != "cuda":
            raise RepriseError(f'executor="cuda_graph" wants a model on a GPU, and this one is on {device}')
        self._subgraph, self._session, self._device = subgraph, subgraph.session, device
        self._memories = subgraph.session.graph_memories
        self.reason: str | None = None  # why there are none
        self._graphed: OrderedDict[tuple[Plan, Places], _torch.GraphedStep] = OrderedDict()
        self._given: list[int] | None = None  # inputs that are no parameters
        self._copies: dict[int, torch.Tensor] = {}  # by input: where it is copied to
        self._given_up = self._good_steps = 0
        self._recorded: dict[TrainingStep, set[Plan]] = {}
        # May graphs add gradients to the .grad tensors that are there? No longer, once one of these has moved.
        self._may_add = True

    @property
    def are_wanted(self) -> bool:
        is_asked_for = self._session.options.executor in (None, "cuda_graph")
        return is_asked_for and self._device.type == "cuda" and self.reason is None

    def are_due(self, tensors: list[torch.Tensor]) -> bool:
        """May graphs run this step? Else it is run as it is."""
        if not self.are_wanted or torch.cuda.is_current_stream_capturing():
            return False
        if not self._subgraph.has_run:  # the memory of graphs is theirs for good: what an optimizer makes comes first
            return False
        if (reason := self._why_never(tensors)) is not None:
            self.turn_off(reason)
            return False
        if self._session.open or self._memories.is_busy(self._device):
            self.give_up("several forwards run before a backward")
            return False
        return True

    def pick_copied_inputs(self, step: TrainingStep, tensors: list[torch.Tensor]) -> None:
        """Makes room for copies of inputs that are not to be read where they lie, before a plan is made for what is
        left: of small ones, and of those that lie elsewhere time and again. Parameters, and what forward changes, are
        read where they lie."""
        places, others = self._places(tensors), {places for plan, places in self._graphed if plan.step is step}
        if places in others:
            return
        moved = _moved(places, others) if len(others) >= _PLACES else set()
        changed = {tensors[i].untyped_storage().data_ptr() for i in step.changed_inputs}
        before = len(self._copies)
        for i, _ in places:
            tensor = tensors[i]
            is_small = tensor.untyped_storage().nbytes() <= _SMALL * step.graph.base_peak
            if tensor.untyped_storage().data_ptr() not in changed and (is_small or i in moved):
                self._copies[i] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype,
                                                      device=tensor.device)
            elif i in moved:
                self.turn_off("forward changes an input that lies elsewhere time and again")
                return
        if len(self._copies) > before:
            self._drop_all()

    def graphed_step(self, plan: Plan, tensors: list[torch.Tensor]) -> _torch.GraphedStep | None:
        """Those that are to run this step, recorded; None: it is run as it is. What recording shows of memory is
        learned: the plan may not be the one to take any more."""
        if self.reason is not None:
            return None
        key = (plan, self._places(tensors))
        if key not in self._graphed:
            return self._new(key, tensors)
        graphed = self._graphed[key]
        if graphed.has_moved(tensors):
            self.give_up("parameters are replaced by others")
            return None
        if not graphed.are_at_their_sums(tensors):
            self._may_add = False
            self._drop_all(plan.step)
            return self._new(key, tensors)
        self._graphed.move_to_end(key)
        self._good_steps += 1
        if self._good_steps == _FORGIVING:
            self._given_up = 0
        return graphed

    def _places(self, tensors: list[torch.Tensor]) -> Places:
        if self._given is None:
            self._given = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, torch.nn.Parameter)]
        return tuple((i, tensors[i].data_ptr()) for i in self._given if i not in self._copies)

    def empty_caches(self, step: TrainingStep) -> None:
        """Before the first graphs of a step: what other steps have left would lie beside their memory."""
        if not self.are_wanted or self._memories.is_busy(self._device):
            return
        if not self._session.open and all(plan.step is not step for plan, _ in self._graphed):
            torch.cuda.empty_cache()
            self.give_back_workspaces()

    def give_back_workspaces(self) -> None:
        """Those of cuBLAS that steps before have left: graphs have their own."""
        if self.are_wanted:
            torch._C._cuda_clearCublasWorkspaces()

    def final_plan(self, step: TrainingStep, left: int | None) -> Plan | None:
        """The plan to stay with, after many were recorded: the loosest of those that take no more than is left; None:
        the smallest."""
        if len(self._recorded.get(step, ())) < _MOST_PLANS:
            return None
        plans = sorted((plan for plan, _ in self._graphed if plan.step is step), key=lambda plan: plan.peak)
        if left is None:
            return plans[0] if plans else None
        return next((plan for plan in reversed(plans) if plan.peak <= left), None)

    def _why_never(self, tensors: list[torch.Tensor]) -> str | None:
        if self._session.is_several:
            return "the model is more than one graph"
        if any(tensor.device != self._device for tensor in tensors):
            return "an input is on another device"
        return None

    def _new(self, key: tuple[Plan, Places], tensors: list[torch.Tensor]) -> _torch.GraphedStep | None:
        plan, step = key[0], key[0].step
        if step.off_device is not None:
            self.turn_off(step.off_device)
            return None
        is_first = step not in self._recorded
        self._recorded.setdefault(step, set()).add(plan)
        resident = self._subgraph.in_use(step)
        try:
            graphed = self._memories.graphed(
                step.device, step.schedule(plan), [self._copies.get(i) for i in range(len(tensors))],
                self._subgraph.gradients_stay(step), step.case.strides, self._may_add, most_waiting(plan.peak))
            taken = graphed.record(tensors)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.turn_off(str(error))
            return None
        self._graphed[key] = graphed
        while len(self._graphed) > _GRAPHS:
            self._drop(next(iter(self._graphed)))
        self._subgraph.facts_of(plan).learn_recorded(taken, resident - step.remembered_bytes, is_first)
        return graphed

    def give_up(self, reason: str) -> None:
        """For now; for good, where it happens again and again."""
        if not self._graphed:
            return
        self._given_up += 1
        self._good_steps = 0
        if self._given_up == _PATIENCE:
            self.turn_off(reason)
        else:
            self.release()

    def turn_off(self, reason: str) -> None:
        self.reason = first_line(reason)
        log.warning("CUDA graphs are not used: %s", self.reason)
        self.release()
        self._recorded.clear()
        self._subgraph.begin_anew()

    def release(self) -> None:
        self._memories.settle(self._device)
        self._drop_all()
        self._copies.clear()
        self._memories.clean(self._device)

    def _drop_all(self, step: TrainingStep | None = None) -> None:
        for key in [key for key in self._graphed if step is None or key[0].step is step]:
            self._drop(key)

    def _drop(self, key: tuple[Plan, Places]) -> None:
        graphed = self._graphed.pop(key)
        self._subgraph.forget(graphed)
        self._memories.end(self._device, graphed)


def _moved(places: Places, others: set[Places]) -> set[int]:
    """Inputs that lie elsewhere now than they did."""
    return {i for other in others for i, _ in set(other) - set(places)}
