# SPDX-License-Identifier: Apache-2.0
"""One captured graph: runs its training steps by plans, and learns from what they took."""

from __future__ import annotations

import logging
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING

import torch

from . import _torch, memory
from .capture.joint import BackwardCase, Capture
from .chooser import Chooser
from .errors import CaptureError, InfeasibleBudget
from .facts import Facts
from .graphs import Graphs
from .kernels import KernelSettings, captured_under, kernel_settings, multiplies, set_up_cublas
from .planner import Plan, TrainingStep

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger("reprise")

# On CUDA: how far what is there when a step begins has to move, as a share of the peak, for another step to be measured:
# that restarts the allocator's own peak for everybody.
_MOVED = 0.002
_MOST_OTHERS = 8  # captures for inputs that share memory in other ways
_NO_MEMORY = "there is no memory for them"  # why there are no graphs
_TRIES = 4  # plans that are recorded as CUDA graphs before one is taken


class Subgraph:
    """One captured graph. Called like the graph module it stands for."""

    def __init__(self, session: "Session", module: torch.fx.GraphModule, inputs: list):
        self.session = session
        self._module = module
        self._capture = Capture(module, inputs)
        self._others: list[Subgraph] = []  # for inputs that share memory in another way
        first = self._capture.first
        self._traces = {(first.case, kernel_settings()): first}
        self.case = first.case
        self._steps: dict[tuple, TrainingStep] = {}
        # By plan, its CUDA graphs, and which gradients are absent when forward begins.
        self._prepared: dict[tuple[Plan, _torch.GraphedStep | None, tuple[bool, ...]], _torch.Prepared] = {}
        self._fx_steps: dict = {}  # by plan
        self._tensors = [i for i, t in enumerate(first.inputs) if t is not None]
        self._leaves = [i for i in self._tensors if inputs[i].requires_grad and inputs[i].is_leaf]
        self._absent_later: dict[tuple[bool, ...], tuple[bool, ...]] = {}  # gradients: at backward, by those at forward
        self.begun: list[_torch.Begun] = []  # forwards of this step
        self.chooser = Chooser(self)
        self.graphs = Graphs(self, first.device)
        self.uncounted = memory.uncounted(inputs[i] for i in self._tensors)
        self.has_run = False  # a step to the end of its backward
        self.is_differentiable = any(first.differentiable)
        self.facts: Facts | None = None  # of the last step
        self._facts: dict[Plan, Facts] = {}
        self.most_taken = 0  # bytes, by any step

    def __call__(self, *args):
        """Runs a step of the capture that knows how these inputs share memory."""
        tensors = [args[i] for i in self._tensors]
        found = next((one for one in (self, *self._others) if one._capture.is_for(tensors)), None)
        if found is None:
            found = self._capture_another(args)
        return found._step(args, tensors)

    def _capture_another(self, args: tuple) -> "Subgraph":
        if self._capture.has_moved_weights([args[i] for i in self._tensors]):
            raise CaptureError("the weights of cuDNN's recurrent layers lie otherwise than they did: call their "
                               "flatten_parameters()")
        if len(self._others) == _MOST_OTHERS:
            raise CaptureError("forward changes an input that shares memory with another, and in another way from call "
                               "to call: hand it a tensor of its own")
        made = Subgraph(self.session, self._module, list(args))
        made.chooser.plan_as(self.chooser)
        self._others.append(made)
        return self.session.add(made)

    def _step(self, args: tuple, tensors: list[torch.Tensor]):
        if self.session.handed.tensors is not None:
            self.session.handed.tensors.extend(map(weakref.ref, tensors))
        if not torch.is_grad_enabled():
            return self._module(*args)
        absent = tuple(args[i].grad is None for i in self._leaves)
        first = self._capture.first
        if not self._facts and first.device.type == "cuda" and not self.graphs.are_wanted and multiplies(first.calls):
            set_up_cublas(first.device)  # graphs have their own, and want these given back
        step = self._step_without(absent)
        self.session.graph_memories.settle(step.device)
        self.graphs.empty_caches(step)
        started = self.in_use(step)
        if self.session.options.executor == "fx":
            returned = self._fx_step(self.chooser.choose(step, started), started)(*tensors)
        else:
            returned = self._run(step, started, tensors, absent)
        constants = step.trace.output_constants
        return [constants[i] if t is None else t for i, t in enumerate(returned)]

    def _step_without(self, absent: tuple[bool, ...]) -> TrainingStep:
        """That of a forward that begins without these gradients: people set them to None before or after it."""
        return self.step(self._absent_later.get(absent, absent))

    def gradients_stay(self, step: TrainingStep) -> list[bool]:
        """By tensor that is an input: if it gets a gradient, does that stay?"""
        return [step.grads_kept[i] for i in self._tensors]

    def step(self, grads_absent: tuple[bool, ...] | None = None,
             settings: KernelSettings | None = None) -> TrainingStep:
        """The step with the backward that came last; `grads_absent` by leaf: gradients not there yet will stay;
        `settings`: of its forward, where they may be others now."""
        grads_absent = (True,) * len(self._leaves) if grads_absent is None else grads_absent
        settings = settings or kernel_settings()
        captured = (self.case, settings)  # what eager runs depends on both
        key = (captured, grads_absent)
        if key not in self._steps:
            if captured not in self._traces:
                with captured_under(settings):
                    self._traces[captured] = self._capture.trace(self.case)
            trace = self._traces[captured]
            kept = [True] * len(trace.inputs)
            for position, absent in zip(self._leaves, grads_absent):
                kept[position] = absent
            options = self.session.options
            self._steps[key] = TrainingStep(trace, settings, name=options.name, grads_kept=kept, costs=options.costs,
                                            in_graphs=self.graphs.are_wanted,
                                            most_bytes=self._most_bytes(trace.device),
                                            may_run_in_parts=options.executor != "fx" and not options.exact,
                                            may_run_at_once=options.executor != "fx")
        return self._steps[key]

    def _most_bytes(self, device: torch.device) -> int | None:
        """What profiling may take: what the budget leaves."""
        budget = self.session.budget(device)
        if budget.bytes is None:
            return None
        self.graphs.give_back_workspaces()
        return max(0, budget.bytes - memory.in_use(device))

    def _run(self, step: TrainingStep, started: int, tensors: list[torch.Tensor], absent: tuple[bool, ...]) -> list:
        """Where the device runs out of memory, all is put back, and the step runs by a plan that takes less."""
        before = None
        while True:
            plan, graphed = self._choose(step, started, tensors, absent)
            started = self.in_use(plan.step)  # steps before may have let go of what they keep
            if graphed is None and self._can_roll_back(plan):
                before = before or _Before(plan.step, tensors)
            prepared = self._prepare(plan, started, graphed, absent)
            still_open = self.session.open.count(self)
            self.begun = self.begun[-still_open:] if still_open else []
            self.session.begin(self, started)
            try:
                outputs, begun = _torch.run_step(prepared, tensors)
                self.begun.append(begun)
                return outputs
            except torch.OutOfMemoryError:
                if before is None:
                    raise
                before.restore()
                self.chooser.tighten(plan)
                step = plan.step

    def _can_roll_back(self, plan: Plan) -> bool:
        """A plan that is new. Not in a recording: nothing runs there."""
        return (plan.step.device.type == "cuda" and not self.facts_of(plan).is_settled
                and not torch.cuda.is_current_stream_capturing())

    def _choose(self, step: TrainingStep, started: int, tensors: list[torch.Tensor],
                absent: tuple[bool, ...]) -> tuple[Plan, _torch.GraphedStep | None]:
        """A plan, and CUDA graphs of it, where they are due and there is memory for them."""
        chosen = self._choose_graphed(step, tensors) if self.graphs.are_due(tensors) else None
        return chosen or (self._choose_as_it_is(step, started, absent), None)

    def _choose_as_it_is(self, step: TrainingStep, started: int, absent: tuple[bool, ...]) -> Plan:
        """Where what graphs hold beside the caller's loss does not fit into a budget in bytes, there are none."""
        if step.in_graphs == self.graphs.are_wanted:
            try:
                return self._plan(step, started, by_graphs=False)
            except InfeasibleBudget:
                if not step.in_graphs or self.session.budget(step.device).bytes is None:
                    raise
                self.graphs.turn_off(_NO_MEMORY)
        return self._plan(self._step_without(absent), started, by_graphs=False)  # one that graphs are not to run

    def _choose_graphed(self, step: TrainingStep,
                        tensors: list[torch.Tensor]) -> tuple[Plan, _torch.GraphedStep] | None:
        """None: graphs were given up."""
        at_most = self.chooser.at_most
        try:
            self.graphs.pick_copied_inputs(step, tensors)
            return self._recorded(step, tensors)
        except (torch.OutOfMemoryError, InfeasibleBudget):
            self.chooser.at_most = at_most
            self.graphs.turn_off(_NO_MEMORY)
            return None

    def _recorded(self, step: TrainingStep, tensors: list[torch.Tensor]) -> tuple[Plan, _torch.GraphedStep] | None:
        """What recording shows may lead to another plan."""
        if self.graphs.reason is not None:
            return None
        for attempt in range(_TRIES):
            plan = self._plan(step, self.in_use(step), by_graphs=True)
            try:
                graphed = self.graphs.graphed_step(plan, tensors)
            except torch.OutOfMemoryError:
                if attempt + 1 == _TRIES:
                    raise
                self.chooser.tighten(plan)
                continue
            if graphed is None:
                return None
            self.facts = self.facts_of(plan)
            if self._plan(step, self.in_use(step), by_graphs=True) is plan:
                break
        return plan, graphed

    def _plan(self, step: TrainingStep, started: int, by_graphs: bool) -> Plan:
        budget, left = self.session.budget(step.device).bytes, self.chooser.at_most
        if budget is not None:
            room = step.room_in(budget - started, by_graphs)
            left = room if left is None else min(room, left)
        return self.graphs.final_plan(step, left) or self.chooser.choose(step, started, by_graphs=by_graphs,
                                                                         for_once=self._is_for_once(by_graphs))

    def _is_for_once(self, by_graphs: bool) -> bool:
        """Does this step run as it is, and the next by graphs, with a plan of their own?"""
        return self.graphs.are_wanted and not by_graphs

    @property
    def executor(self) -> str:
        """What ran the last step."""
        if self.session.options.executor == "fx":
            return "fx"
        return "cuda_graph" if self.facts is not None and self.facts.is_graphed else "native"

    def facts_of(self, plan: Plan) -> Facts:
        return self._facts.setdefault(plan, Facts(plan))

    def forget(self, graphed: _torch.GraphedStep) -> None:
        """So that its memory is free."""
        self._prepared = {key: made for key, made in self._prepared.items() if key[1] is not graphed}

    def _fx_step(self, plan: Plan, started: int):
        from .fx_executor import FxStep

        self._note_plan(plan, started, None)
        self.session.ran = [self]
        if plan not in self._fx_steps:
            self._fx_steps[plan] = FxStep(plan)
        return self._fx_steps[plan]

    def _note_plan(self, plan: Plan, started: int, graphed: _torch.GraphedStep | None) -> Facts:
        """The facts of this plan, with what is expected of a step that begins now."""
        step = plan.step
        self.facts = self.facts_of(plan)
        budget = self.session.budget(step.device)
        self.facts.resident, self.facts.is_graphed = started, graphed is not None
        if not self.session.is_several:
            self.facts.budget = budget.bytes if budget.share is None else (
                started + step.gradient_bytes + step.share_of(budget.share))
            self.facts.predict()
            if graphed is not None:
                self.facts.note_replay()
                self.session.graph_memories.begin(step.device, self.facts.graphs_bytes)
                self.most_taken = max(self.most_taken, self.facts.measured)
        return self.facts

    def release(self) -> None:
        """What graphs hold, and what is prepared: it is made again where this is called again."""
        self.graphs.release()
        self._prepared.clear()
        self._fx_steps.clear()

    def begin_anew(self) -> None:
        """Steps are made anew, as what runs them is another."""
        self._prepared.clear()
        self._fx_steps.clear()
        self._steps.clear()
        self._facts.clear()

    def _prepare(self, plan: Plan, started: int, graphed: _torch.GraphedStep | None, absent: tuple[bool, ...]):
        """What runs the step. Steps in which something is to be learned are prepared anew each time."""
        step, facts = plan.step, self._note_plan(plan, started, graphed)
        is_first, on_cpu = facts.timeline is None, step.device.type == "cpu"
        learns = self._is_to_learn(facts, started, graphed)
        key = (plan, graphed, absent)
        if not learns and key in self._prepared:
            return self._prepared[key]

        can_be_tighter = graphed is None and self._can_roll_back(plan)
        prepared = _torch.Prepared(
            schedule=step.schedule(plan), tangents=step.case.strides, autocast=step.case.autocast,
            other=partial(self._other, facts, graphed),
            finished=partial(self._finished, facts, graphed, absent),
            tighter=partial(self._tighter, facts) if can_be_tighter else None,
            measured=step.device if on_cpu or learns else None,
            by_instruction=is_first and graphed is None, graphed=graphed,
            not_graphed=self.graphs.give_up)
        if not learns:
            self._prepared[key] = prepared
        return prepared

    @staticmethod
    def _is_to_learn(facts: Facts, started: int, graphed: _torch.GraphedStep | None) -> bool:
        """From a step that begins with `started` bytes in use."""
        if graphed is not None:
            return not facts.step.knows_outside  # recording showed the rest
        if facts.timeline is None:
            return True
        if facts.step.device.type == "cpu":
            return False
        return not facts.is_settled or abs(started - facts.measured_from) > _MOVED * facts.predicted

    # The runtime calls the next three.

    def _finished(self, facts: Facts, graphed: _torch.GraphedStep | None, absent: tuple[bool, ...],
                  taken: _torch.Taken) -> None:
        """A step has ended. `absent`: gradients that were, when its forward began."""
        try:
            if taken.had_gradient:
                had = dict(zip(self._tensors, taken.had_gradient))
                self._absent_later[absent] = tuple(not had[i] for i in self._leaves)
            ran = self.session.ran
            self.has_run |= bool(taken.had_gradient)
            if taken.whole and taken.peak and graphed is not None:
                facts.learn_outside(taken)
            elif taken.whole and taken.peak:
                facts.learn(taken, self.uncounted, is_alone=len(ran) == 1,
                            is_last=ran[-1] is self and ran.count(self) == 1)
                self.most_taken = max(self.most_taken, facts.measured)
            self.session.end(self)
        except Exception as error:  # called from a destructor: there is nobody to throw to
            warnings.warn(f"Reprise could not learn from a step: {error!r}")

    def _other(self, facts: Facts, graphed: _torch.GraphedStep | None, tangents, autocast: bool,
               was_shed: bool) -> _torch.Schedule:
        """For another backward than was planned, or where values were shed."""
        self.case = BackwardCase(tuple(None if t is None else tuple(t) for t in tangents), autocast)
        if self.case != facts.step.case:
            log.info("backward is another one than planned: captured again")
        another = self.step(settings=facts.step.settings)
        by_graphs = graphed is not None and another is facts.step
        if was_shed:
            return another.schedule(self.chooser.choose_again(another, by_graphs))
        return another.schedule(self.chooser.choose(another, facts.resident, by_graphs=by_graphs,
                                                    for_once=self._is_for_once(by_graphs)))

    def _tighter(self, facts: Facts) -> _torch.Schedule:
        """For a step whose plan there was no memory for."""
        self.chooser.tighten(facts.plan)
        return facts.step.schedule(self.chooser.choose(facts.step, facts.resident))

    def in_use(self, step: TrainingStep) -> int:
        """When the step begins, with what it copies then, and what graphs hold whose backward is still to come: their
        memory is allocated to nobody."""
        waiting = self.session.graph_memories.waiting(step.device)
        return memory.in_use(step.device) + self.uncounted + step.remembered_bytes + waiting


class _Before:
    """What a step's forward changes: random states and inputs that it writes to."""

    def __init__(self, step: TrainingStep, tensors: list[torch.Tensor]):
        self._copies = [(tensors[i], tensors[i].detach().clone()) for i in step.changed_inputs]
        self._random = (torch.get_rng_state(), torch.cuda.get_rng_state(step.device))
        self._device = step.device

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, copy in self._copies:
                tensor.copy_(copy)
        torch.set_rng_state(self._random[0])
        torch.cuda.set_rng_state(self._random[1], self._device)
