# SPDX-License-Identifier: Apache-2.0
"""Runs captured training steps inside a budget: chooses a plan, runs it, learns from what it took."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field
from typing import Callable

import torch

from . import _core, _torch, memory
from .budget import Budget, parse_budget
from .capture.joint import BackwardCase, Capture
from .errors import InfeasibleBudget
from .planner import Plan, Search, TrainingStep

log = logging.getLogger("reprise")


@dataclass
class Options:
    budget: int | str = "auto"
    costs: str = "profile"
    executor: str = "native"
    search: Search = field(default_factory=Search)
    name: str = "model"


@dataclass
class Facts:
    """What was planned for a step, and what it took. Bytes are of the device, parameters and all."""

    step: TrainingStep
    plan: Plan
    budget: int | None = None  # bytes; None: the smallest
    resident: int = 0  # there when the last step began
    predicted: int = 0  # of the last step
    measured: int | None = None  # of the last step, at its worst moment
    most: int = 0  # of any step so far
    released: int = 0  # by the caller between forward and backward: outputs of the step before
    timeline: list[int] | None = None  # bytes in use while each instruction of one step ran
    timeline_start: int = 0
    steps: int = 0

    def predict(self, started: int) -> None:
        before, after = self.plan.halves(self.step)
        self.resident, self.predicted = started, started + max(before, after - self.released)


class Session:
    """The captured graphs of one module, or of one torch.compile call, under one budget."""

    def __init__(self, options: Options):
        if options.costs not in ("profile", "flops"):
            raise ValueError(f"costs={options.costs!r}: want 'profile' or 'flops'")
        if options.executor not in ("native", "fx"):
            raise ValueError(f"executor={options.executor!r}: want 'native' or 'fx'")
        self.options = options
        parse_budget(options.budget, free=1)
        self.subgraphs: list[Subgraph] = []
        self.captures = 0

    def backend(self, module: torch.fx.GraphModule, inputs: list) -> Callable:
        """What Dynamo asks for each graph that it finds."""
        if not torch.is_grad_enabled() or not any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs):
            return module.forward
        self.captures += 1
        subgraph = Subgraph(self, module, inputs)
        if not subgraph.is_differentiable:
            return module.forward
        self.subgraphs.append(subgraph)
        return subgraph

    def budget(self, device: torch.device) -> Budget:
        if self.options.budget != "auto":
            return parse_budget(self.options.budget)
        return parse_budget("auto", free=memory.in_use(device) + int(0.95 * memory.free(device)))


class Subgraph:
    """One captured graph. Called like the graph module it stands for."""

    def __init__(self, session: Session, module: torch.fx.GraphModule, inputs: list):
        self.session = session
        self._module = module
        self._capture = Capture(module, inputs)
        first = self._capture.trace()
        self._traces = {first.case: first}
        self._case = first.case
        self._steps: dict[tuple, TrainingStep] = {}
        self._prepared: dict[int, tuple[Plan, object]] = {}
        self._tensor_positions = [i for i, t in enumerate(first.inputs) if t is not None]
        self._leaves = [i for i in self._tensor_positions if inputs[i].requires_grad and inputs[i].is_leaf]
        self._budget: Budget | None = None
        self._uncounted = memory.uncounted(inputs[i] for i in self._tensor_positions)
        self.is_differentiable = any(first.differentiable)
        self.facts: Facts | None = None

    def __call__(self, *args):
        if not torch.is_grad_enabled():
            return self._module(*args)
        step = self._step(self._case, tuple(args[i].grad is None for i in self._leaves))
        started = memory.in_use(step.device) + self._uncounted
        plan = self._choose(step, started)
        returned = _torch.run_step(self._prepare(step, plan, started), [args[i] for i in self._tensor_positions])
        constants = step.trace.output_constants
        return [constants[i] if t is None else t for i, t in enumerate(returned)]

    # Which captured step, which plan.
    def _step(self, case: BackwardCase, grads_absent: tuple[bool, ...]) -> TrainingStep:
        key = (case, grads_absent)
        if key not in self._steps:
            if case not in self._traces:
                self._traces[case] = self._capture.trace(case)
            trace = self._traces[case]
            kept = [True] * len(trace.inputs)
            for position, absent in zip(self._leaves, grads_absent):
                kept[position] = absent
            options = self.session.options
            self._steps[key] = TrainingStep(trace, name=options.name, grads_kept=kept, costs=options.costs,
                                            most_bytes=self._most_bytes(trace))
        return self._steps[key]

    def _most_bytes(self, trace) -> int | None:
        budget = self.session.budget(torch.device("cpu")) if self.session.options.budget != "auto" else None
        if budget is None or budget.bytes is None:
            return None
        return max(0, budget.bytes - memory.in_use(torch.device("cpu")))

    def _choose(self, step: TrainingStep, started: int) -> Plan:
        budget = self._named_budget(step)
        search = self.session.options.search
        if budget.share is not None:
            plan, answer = step.plan_share(budget.share, search)
        elif budget.is_smallest:
            plan, answer = step.plan_within(None, search)
        else:
            left = budget.bytes - started
            current = self._current(step)
            if current is not None and current.peak <= left and not self._too_careful(step, current, left):
                return current
            plan, answer = step.plan_within(left, search) if left > 0 else (None, {})
        if plan is None:
            raise self._infeasible(step, budget, started, answer)
        return plan

    def _named_budget(self, step: TrainingStep) -> Budget:
        if self._budget is None:
            self._budget = self.session.budget(step.device)
        return self._budget

    def _current(self, step: TrainingStep) -> Plan | None:
        return self.facts.plan if self.facts is not None and self.facts.step is step else None

    @staticmethod
    def _too_careful(step: TrainingStep, plan: Plan, left: int) -> bool:
        """Was it made for much less than there is now, and does it pay for that?"""
        return plan.cost > step.graph.base_cost and plan.budget is not None and left > plan.budget * 1.05

    def _infeasible(self, step: TrainingStep, budget: Budget, started: int, answer: dict) -> InfeasibleBudget:
        words = _core.to_words
        if budget.bytes is not None and budget.bytes <= started:
            return InfeasibleBudget(
                f"budget {words(budget.bytes)} can't be met: {words(started)} are in use before the step begins "
                "(parameters, buffers, inputs, optimizer state)")
        smallest = answer.get("smallest_peak_bytes")
        reached = None if smallest is None else smallest + (started if budget.bytes is not None else 0)
        binding = answer.get("binding_op")
        what = f"; '{binding}' needs {words(answer['smallest_peak_bound'])} while it runs" if binding else ""
        if budget.bytes is not None:
            hint = "" if reached is None else f"; the smallest plan found takes {words(reached)} ({reached} bytes)"
            return InfeasibleBudget(f"budget {words(budget.bytes)} can't be met: {words(started)} are in use before the "
                                    f"step begins{what}{hint}", reached)
        base = step.activations.base_peak
        hint = "" if smallest is None else f"; the smallest plan found takes {100 * smallest / base:.1f}%"
        return InfeasibleBudget(f"budget {budget.text} of {words(base)} activations can't be met{what}{hint}",
                                None if smallest is None else smallest + step.gradient_bytes + started)

    # Running it.
    def _prepare(self, step: TrainingStep, plan: Plan, started: int):
        facts = self.facts
        if facts is None or facts.plan is not plan or facts.step is not step:
            facts = self.facts = Facts(step, plan)
        budget = self._named_budget(step)
        facts.budget = budget.bytes if budget.share is None else started + step.gradient_bytes + plan.budget
        facts.predict(started)
        first = facts.timeline is None
        if not first and id(plan) in self._prepared:
            return self._prepared[id(plan)][1]
        schedule = step.schedule(plan)
        measured = step.device if first or step.device.type == "cpu" else None
        uncounted = self._uncounted

        def finished(whole, peak, *rest):
            try:
                if whole and peak:
                    self._learn(facts, peak + uncounted, *rest)
            except Exception as error:  # called from a destructor: there is nobody to throw to
                warnings.warn(f"Reprise could not learn from a step: {error!r}")

        def other(tangents, autocast):
            case = BackwardCase(tuple(None if t is None else tuple(t) for t in tangents), autocast)
            self._case = case
            log.info("backward is another one than planned: captured again")
            another = self._step(case, tuple(True for _ in self._leaves))
            return another.schedule(self._choose(another, facts.resident))

        prepared = _torch.Prepared(
            schedule=schedule, tangents=[None if s is None else list(s) for s in step.case.strides],
            autocast=step.case.autocast, other=other, finished=finished, measured=measured, recorded=first)
        if not first:
            self._prepared[id(plan)] = (plan, prepared)
        return prepared

    def _learn(self, facts: Facts, peak: int, forward_end: int, outside_peak: int, backward_begin: int,
               peaks: list[int]) -> None:
        facts.steps += 1
        facts.measured, facts.most = peak, max(facts.most, peak)
        step = facts.step
        facts.released = max(0, forward_end + step.given - backward_begin)
        if peaks and facts.timeline is None:
            facts.timeline, facts.timeline_start = peaks, facts.resident
            step.set_outside(max(0, outside_peak - forward_end - step.given))
