# SPDX-License-Identifier: Apache-2.0
"""A captured training step, what is known of it, and its plans."""

from __future__ import annotations

import hashlib
import json
import math
import weakref
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from . import _core, _torch
from .capture.joint import BackwardCase, Trace
from .capture.lower import HELD, lower
from .costs import add_costs
from .errors import PlanMismatch
from .in_parts import GraphInParts, OpInParts, highest_by_op
from .kernels import KernelSettings
from .solving import Search

# How many tensors as large as the outputs a loss is assumed to need at a time, before it was seen.
_CAREFUL = 3
# Where the smallest peak takes so many times the plain step's time, the first of these shares of it is taken that takes so
# many times less.
_DEAR, _A_LITTLE_MORE, _FAR_CHEAPER = 2, (1.02, 1.05, 1.1), 2
# Of a peak: what is as good as at it.
_CLOSE = 0.98
# On CUDA: how much of a budget is planned with, for steps that run as they are and for graphs, whose recording shows what
# they take; and how much of a peak the allocator is believed to add, before a step was seen and at the most in the first.
_SURE_ON_CUDA, _SURE_IN_GRAPHS = Fraction(980, 1000), Fraction(998, 1000)
_ASSUMED_SLACK, _MOST_FIRST_SLACK = 0.005, 0.02


class Levels(NamedTuple):
    """The most bytes in use, over what is there when a step begins."""

    forward: int
    backward: int
    outside: int  # while the caller has the outputs


@dataclass(eq=False)
class Plan:
    """Steps for a training step: an op to compute, or ~value to free."""

    step: "TrainingStep" = field(repr=False)
    steps: list[int]
    cost: int
    lower_bound: int | None  # on the cost of any plan within the budget
    budget: int | None  # bytes that it was asked to stay within; None: the smallest
    status: str
    in_parts: frozenset[OpInParts] = frozenset()
    at_once: frozenset[int] = frozenset()  # calls that run with both halves at once

    @property
    def levels(self) -> Levels:
        return self.step.levels_of(self)

    @property
    def peak(self) -> int:
        """Bytes over what is there when the step begins."""
        return max(self.levels)

    @property
    def kept(self) -> int:
        """Bytes that are there between forward and backward, the caller's own aside."""
        step = self.step
        return (self.levels.outside - step.outside_workspace - step.tangent_bytes - step.held
                + step.kept_by_renewals)


class TrainingStep:
    """One captured step as a graph with costs and a program to run, and the plans made for it."""

    def __init__(self, trace: Trace, settings: KernelSettings, *, name: str, grads_kept: list[bool], costs: str,
                 in_graphs: bool, most_bytes: int | None, may_run_in_parts: bool, may_run_at_once: bool):
        self.trace = trace
        self.settings = settings  # under which it was captured
        self.grads_kept = grads_kept  # by input: if it gets one, that stays
        self.lowered = lower(trace, name=name, grads_kept=grads_kept)
        self.program = _torch.Program(self.lowered.program)
        self.device = trace.device
        self._plans: dict[tuple, Plan] = {}
        self.lowered.graph["name"] += f" {_structure(self.lowered.graph)}"
        ways = add_costs(self.lowered, self.program, how=costs, in_graphs=in_graphs, most_bytes=most_bytes,
                         may_run_in_parts=may_run_in_parts and not settings.deterministic,
                         may_run_at_once=may_run_at_once)
        self._by_parts = ways.by_parts  # by op and how many
        self.fixed_parts, self._renewed, self._at_once = ways.fixed_parts, ways.renewed, ways.at_once
        self.kept_by_renewals = ways.kept
        values, outside = self.lowered.graph["values"], self.lowered.graph["ops"][self.lowered.outside]
        gradients = self._gradients_that_stay()
        self.gradient_bytes = sum(value["bytes"] for value in values if value["name"] in gradients)
        self._graphs = GraphInParts(self.lowered.graph, self._by_parts, gradients)
        made = set(outside["outputs"])
        self.tangent_bytes = sum(value["bytes"] for value in values if value["name"] in made)  # gradients of the outputs
        self.in_graphs = in_graphs  # it is to run by CUDA graphs
        self.caller_bytes = 0  # that the caller takes while the memory of CUDA graphs is there as a whole
        remembered = {self.lowered.geometry(slot).storage for slot in self.lowered.program.remembered}
        self.remembered_bytes = sum(trace.storages[storage].bytes for storage in remembered)  # copies, for the step's time
        self._held = next(value for value in values if value["name"] == HELD)
        # Bytes beyond a plan's peak: what renewals read, small gradients that wait, the allocator's larger blocks.
        self.slack = 0
        self.knows_outside, self._is_careful = False, self.tangent_bytes > 0
        self._rebuild()
        # What losses take that make a few tensors as large as the outputs.
        self.set_outside(_CAREFUL * self.tangent_bytes, self.tangent_bytes)
        if in_graphs:
            self.slack = ways.kept + most_waiting(self.graph.base_peak)
        elif self.device.type != "cpu":
            self.slack = ways.kept + int(_ASSUMED_SLACK * self.graph.base_peak)

    @property
    def case(self) -> BackwardCase:
        return self.trace.case

    def set_outside(self, workspace: int, held: int) -> None:
        """What the caller takes between forward and backward, beyond outputs and their gradients: for then, and to
        the end of the step. CUDA graphs have a copy of these gradients, and no memory to spare for the caller."""
        if self.in_graphs:
            self.caller_bytes = workspace + held + self.tangent_bytes
            workspace = held = 0
        loosened = self.held - held
        self._held["bytes"] = held
        self.set_workspace(self.lowered.outside, workspace)
        self._plans = {key: plan for key, plan in self._plans.items()
                       if loosened < 0.02 * plan.peak or plan.cost == self.graph.base_cost}

    def learn_outside(self, workspace: int, held: int) -> None:
        """As it was seen: no more is assumed."""
        self.set_outside(workspace, held)
        self.knows_outside, self._is_careful = True, False

    def assume_little(self) -> bool:
        """Until it is known: as if the loss needed nothing. False where no more than that is assumed already."""
        if not self._is_careful:
            return False
        self._is_careful = False
        self.set_outside(0, 0)
        return True

    @property
    def outside_workspace(self) -> int:
        return self.lowered.graph["ops"][self.lowered.outside]["workspace"]

    @property
    def held(self) -> int:
        return self._held["bytes"]

    def learn_workspace(self, op: int, more: int) -> None:
        """An op took more than it was expected to, in parts or not."""
        for way in self._by_parts.get(op, {}).values():
            way.workspace += more
        self.set_workspace(op, self.lowered.graph["ops"][op].get("workspace", 0) + more)

    def set_workspace(self, op: int, workspace: int) -> None:
        """Learns what an op takes. Plans that fit, and that were not held back by it, stay."""
        before = self.lowered.graph["ops"][op].get("workspace", 0)
        held_back = {key for key, plan in self._plans.items() if workspace < before and self._binds(plan, op)}
        self.lowered.graph["ops"][op]["workspace"] = workspace
        self._relearn(held_back)

    def _relearn(self, held_back: set) -> None:
        self._rebuild()
        for key, plan in list(self._plans.items()):
            if key[0] == "share":
                plan.budget = self._plannable(*key[1:])
            peak = self._graphs.graph(key[0], plan.in_parts).replay(plan.steps)["peak_bytes"]
            if (plan.budget is not None and peak > plan.budget) or key in held_back:
                del self._plans[key]

    def _binds(self, plan: Plan, op: int) -> bool:
        """Is the plan's peak where `op` runs, or close to that?"""
        return plan.cost > self.graph.base_cost and (
            highest_by_op(self.graph_of(plan), plan.steps)[op] > _CLOSE * plan.peak)

    def _rebuild(self) -> None:
        self._bytes = {value["name"]: value["bytes"] for value in self.lowered.graph["values"]}
        self._activation_peak: int | None = None
        self._levels: weakref.WeakKeyDictionary[Plan, Levels] = weakref.WeakKeyDictionary()
        self._graphs.forget()
        self.graph = self._graphs.graph()

    def graph_of(self, plan: Plan) -> _core.Graph:
        """The graph as the plan runs it."""
        return self._graphs.graph(in_parts=plan.in_parts)

    def levels_of(self, plan: Plan) -> Levels:
        """Asked at each step: kept until something is learned, like the next."""
        if plan not in self._levels:
            in_use = [level for i, level in zip(plan.steps, self.graph_of(plan).replay(plan.steps)["in_use"]) if i >= 0]
            left = [i for i in plan.steps if i >= 0].index(self.lowered.outside)
            self._levels[plan] = Levels(max(in_use[:left], default=0), max(in_use[left + 1:], default=0), in_use[left])
        return self._levels[plan]

    @property
    def activation_peak(self) -> int:
        """Of eager's step, gradients that stay aside."""
        if self._activation_peak is None:
            graph = json.loads(self._graphs.graph("share").to_json())
            for op in self.lowered.reusing:
                graph["ops"][op]["overwrites"] = {}
            for op, halves in self._at_once.items():
                graph["ops"][op]["workspace"] = graph["ops"][op].get("workspace", 0) + halves.less
            self._activation_peak = _core.Graph(json.dumps(graph)).base_peak
        return self._activation_peak

    def _gradients_that_stay(self) -> set[str]:
        """Names of values that are gradients, and no outputs, and there after the step."""
        program, values = self.lowered.program, self.lowered.graph["values"]
        outputs = {program.value_of_slot[s] for s in program.outputs if s >= 0}
        made = {program.value_of_slot[s] for s in program.gradients if s >= 0} - outputs
        return {values[value]["name"] for value in made if value >= 0 and values[value].get("keep")}

    @cached_property
    def changed_inputs(self) -> list[int]:
        """Those that forward writes to."""
        return _torch.changed_inputs(self.schedule(self.plain()))

    @cached_property
    def off_device(self) -> str | None:
        """What of it is not on its device, in words, if anything: CUDA graphs can't have that."""
        lowered, program = self.lowered, self.lowered.program
        for call in program.calls:
            if call.device.type != self.device.type:
                return f"{call.where} runs on {call.device}"
        for slot in program.inputs:
            device = lowered.trace.storages[lowered.geometry(slot).storage].device
            if device.type != self.device.type:
                return f"an input or attribute of the model is on {device}"
        return None

    def least_workspace(self) -> dict[int, int]:
        """Of ops that can run in parts."""
        return {op: ways[max(ways)].workspace for op, ways in self._by_parts.items()}

    def rise(self, op: int, plan: Plan) -> int:
        """Bytes that an op is expected to add while it runs as planned."""
        entry = self.lowered.graph["ops"][op]
        made = sum(self._bytes[name] for name in entry["outputs"])
        overwritten = sum(self._bytes[name] for name in entry.get("overwrites", {}).values())
        count = dict(plan.in_parts).get(op)
        workspace = entry.get("workspace", 0) if count is None else self._by_parts[op][count].workspace
        return made + workspace - overwritten

    def plain(self) -> Plan:
        steps, peak, cost = self.graph.base_run, self.graph.base_peak, self.graph.base_cost
        return Plan(self, steps, cost, cost, None, "optimal",
                    at_once=self._that_fit_at_once(steps, frozenset(), peak))

    def plan_share(self, share: Fraction, search: Search, by_graphs: bool) -> tuple[Plan | None, dict]:
        """A plan whose activations stay within a share of the plain step's. `by_graphs`, here and below: CUDA graphs are
        to run it."""
        return self._plan(("share", share, by_graphs), self._plannable(share, by_graphs), search)

    def share_of(self, share: Fraction) -> int:
        """Bytes for activations, as the device's allocator counts them."""
        return int((self.activation_peak + self._beyond) * share)

    def share_for(self, peak: int, by_graphs: bool) -> Fraction:
        """The smallest share for a plan whose activations take that, in full tenths of a percent."""
        part = Fraction(self.budget_for(peak, by_graphs), self.activation_peak + self._beyond)
        return Fraction(math.ceil(1000 * part), 1000)

    def _plannable(self, share: Fraction, by_graphs: bool) -> int:
        """What the activations of a plan may take; those of the plain step are the whole."""
        return self.activation_peak if share >= 1 else self.room_in(self.share_of(share), by_graphs)

    def room_in(self, budget: int, by_graphs: bool = False) -> int:
        """What a plan may take so that the device stays within `budget`."""
        return int(budget * self.margin(by_graphs)) - self._beyond

    def budget_for(self, peak: int, by_graphs: bool = False) -> int:
        """The smallest budget for a plan of that peak: `room_in` the other way around."""
        return math.ceil((peak + self._beyond) / self.margin(by_graphs))

    @property
    def _beyond(self) -> int:
        """Bytes that a step takes over its plan's peak."""
        return self.slack + self.caller_bytes

    def margin(self, by_graphs: bool) -> Fraction:
        """How much of a budget is planned with."""
        if self.device.type == "cpu":
            return Fraction(1)
        return _SURE_IN_GRAPHS if by_graphs else _SURE_ON_CUDA

    def learn_slack(self, plan: Plan, over: int, is_first: bool) -> None:
        """A step took that much more than its ops do: CUDA's allocator hands out larger blocks than it is asked for,
        where it has such. A first step may also allocate what is allocated once."""
        slack = min(over, int(_MOST_FIRST_SLACK * plan.peak)) if is_first else over
        if slack > self.slack:
            self.set_slack(slack)

    def set_slack(self, slack: int) -> None:
        self.slack = slack
        self._relearn(set())  # plans that no longer fit go

    def plan_within(self, budget: int | None, search: Search) -> tuple[Plan | None, dict]:
        """A plan of at most `budget` bytes over what is there when the step begins; None: the smallest."""
        return self._plan(("bytes", budget), budget, search)

    def plan_smallest(self, search: Search) -> tuple[Plan | None, dict]:
        """A plan with the smallest peak, or a little more where that takes far less time."""
        plan, answer = self.plan_within(None, search)
        if plan is None or plan.cost <= _DEAR * self.graph.base_cost:
            return plan, answer
        for share in _A_LITTLE_MORE:
            other, _ = self.plan_within(int(share * plan.peak), search)
            if other is not None and _FAR_CHEAPER * other.cost <= plan.cost:
                return other, answer
        return plan, answer

    def plan_from(self, text: str, source: str) -> Plan:
        """A plan file's. It has to be for this graph; what ops were measured to need may differ. Ops that would take it
        beyond the peak that it names run in parts."""
        try:
            file = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanMismatch(f"{source}: not JSON: {error}") from None
        if isinstance(file, dict):
            made_for, name = file.get("graph"), self.lowered.graph["name"]
            if made_for is not None and made_for != name:
                raise PlanMismatch(f"{source}: the plan is for graph '{made_for}', this one is '{name}'")
            file.pop("fingerprint", None)
        try:
            steps = self.graph.read_plan(json.dumps(file), source)
        except _core.InputError as error:
            raise PlanMismatch(str(error)) from None
        broken = self.graph.check(steps)
        if broken:
            raise PlanMismatch(f"{source}: {broken}")
        in_parts = frozenset()
        if "peak_bytes" in file:
            in_parts = self._graphs.as_fits(steps, file["peak_bytes"])
        real = self._graphs.graph(in_parts=in_parts).replay(steps)
        return Plan(self, steps, real["cost"], None, real["peak_bytes"], "feasible", in_parts,
                    self._that_fit_at_once(steps, in_parts, real["peak_bytes"]))

    def _plan(self, key: tuple, budget: int | None, search: Search) -> tuple[Plan | None, dict]:
        if key in self._plans:
            return self._plans[key], {}
        answer, in_parts = self._graphs.best(key[0], budget, search)
        if answer["steps"] is None:
            return None, answer
        real = self._graphs.graph(in_parts=in_parts).replay(answer["steps"])
        plan = Plan(self, answer["steps"], real["cost"], answer["lower_bound"], budget, answer["status"], in_parts,
                    self._that_fit_at_once(answer["steps"], in_parts, real["peak_bytes"]))
        self._plans[key] = plan
        return plan, answer

    def _that_fit_at_once(self, steps: list[int], in_parts: frozenset[OpInParts], peak: int) -> frozenset[int]:
        """Calls that have room for both of their halves at once, below the peak that there is anyway: all that take no
        more then. The time that they gain is not planned with."""
        if not self._at_once:
            return frozenset()
        highest = highest_by_op(self._graphs.graph(in_parts=in_parts), steps)
        divided = {op for op, _ in in_parts}
        return frozenset(halves.call for op, halves in self._at_once.items()
                         if op not in divided and highest.get(op, peak) + halves.more <= peak)

    def schedule(self, plan: Plan):
        chosen = {self._by_parts[op][count].call: count for op, count in plan.in_parts}
        return _torch.Schedule(self.program, plan.steps, self.fixed_parts | chosen, self._renewed, sorted(plan.at_once),
                               gives_back=self.in_graphs)  # as graphs do: so it was measured


def most_waiting(peak: int) -> int:
    """Bytes of small gradients that CUDA graphs may hold until several are added at once."""
    return peak // 2048


def _structure(graph: dict) -> str:
    """A hash of ops, edges and sizes as captured: the same on any machine, whatever is measured there."""
    parts = [[(v["name"], v["bytes"]) for v in graph["values"]],
             [(op["name"], op["inputs"], op["outputs"]) for op in graph["ops"]]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
