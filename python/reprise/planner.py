# SPDX-License-Identifier: Apache-2.0
"""A captured training step and its plans: asks the C++ core, keeps what it answered."""

from __future__ import annotations

import hashlib
import json
import logging
import weakref
from dataclasses import dataclass, replace
from fractions import Fraction

from . import _core, _torch
from .cache import cache
from .capture.joint import BackwardCase, Trace
from .capture.lower import HELD, lower
from .costs import add_costs
from .errors import PlanMismatch

log = logging.getLogger("reprise")

# Planning settles for this much above the proven bound: less than what timings scatter by.
_GOOD_ENOUGH = 0.002
# How many tensors as large as the outputs a loss is assumed to need at a time, before it was seen.
_CAREFUL = 3
# Of a smallest peak: the most that one with less workspace may have, to be worth other algorithms.
_MUCH_SMALLER = 0.98
# On CUDA: how much of a budget is planned with, and how much of a peak the allocator is believed to add, before a
# step was seen and at the most in the first.
_SURE_ON_CUDA, _SURE_IN_GRAPHS = 0.98, 0.998
_ASSUMED_SLACK, _MOST_FIRST_SLACK = 0.005, 0.02
_HELD_SHARE = 1 / 4096


@dataclass
class Search:
    """How long to look for a plan."""

    seconds: float | None = 5.0
    iterations: int | None = None
    seed: int = 0
    threads: int = 1

    def briefly(self) -> "Search":
        """For plans of which several are made."""
        return self if self.seconds is None else replace(self, seconds=min(1.0, self.seconds))


@dataclass(eq=False)
class Plan:
    """Steps for a training step: an op to compute, or ~value to free."""

    steps: list[int]
    peak: int  # bytes over what is there when the step begins
    cost: int
    lower_bound: int | None  # on the cost of any plan within the budget
    budget: int | None  # bytes that it was asked to stay within; None: the smallest
    status: str
    _parts: tuple | None = None

    def parts(self, step: "TrainingStep") -> tuple[int, int, int]:
        """The peak of forward, that of backward, and what is there while the caller has the outputs."""
        if self._parts is None or self._parts[0] is not step.graph:
            in_use = [level for i, level in zip(self.steps, step.graph.replay(self.steps)["in_use"]) if i >= 0]
            left = [i for i in self.steps if i >= 0].index(step.lowered.outside)
            self._parts = (step.graph, max(in_use[:left], default=0), max(in_use[left + 1:], default=0), in_use[left])
        return self._parts[1:]

    def kept(self, step: "TrainingStep") -> int:
        """Bytes that are there between forward and backward, the caller's own aside."""
        return self.parts(step)[2] - step.outside_workspace - step.given - step.held


class TrainingStep:
    """One captured step as a graph with costs and a program to run, and the plans made for it."""

    def __init__(self, trace: Trace, *, name: str, grads_kept: list[bool], costs: str, in_graphs: bool,
                 most_bytes: int | None, may_run_apart: bool):
        self.trace = trace
        self.grads_stay = grads_kept  # by input: if it gets one, that stays
        self.lowered = lower(trace, name=name, grads_kept=grads_kept)
        self.program = _torch.Program(self.lowered.program)
        self.device = trace.device
        self._plans: dict[tuple, Plan] = {}
        self._made: weakref.WeakSet[Plan] = weakref.WeakSet()  # all that were, whose peaks follow what is learned
        self.lowered.graph["name"] += f" {_structure(self.lowered.graph)}"
        add_costs(self.lowered, self.program, how=costs, in_graphs=in_graphs, most_bytes=most_bytes)
        self._smaller = self.lowered.smaller if may_run_apart else {}  # until it is known whether it pays
        self._usual_workspace: dict[int, int] = {}  # of ops that take less
        values, outside = self.lowered.graph["values"], self.lowered.graph["ops"][self.lowered.outside]
        self._gradients = self._gradients_that_stay()
        self.gradient_bytes = sum(value["bytes"] for value in values if value["name"] in self._gradients)
        made = set(outside["outputs"])
        self.given = sum(value["bytes"] for value in values if value["name"] in made)  # gradients of the outputs
        self.in_graphs = in_graphs
        self.beside = 0  # what the caller takes while the memory of CUDA graphs is there as a whole
        remembered = {self.lowered.geometry(slot).storage for slot in self.lowered.program.remembered}
        self.remembered = sum(trace.storages[storage].bytes for storage in remembered)  # copies, for the step's time
        self._held = next(value for value in values if value["name"] == HELD)
        self.slack = 0
        self.knows_outside = self.is_daring = False
        self.assume_outside(careful=True)
        if in_graphs:
            self.slack = self.may_hold(self.graph.base_peak)
        elif self.device.type != "cpu":
            self.slack = int(_ASSUMED_SLACK * self.graph.base_peak)

    @property
    def case(self) -> BackwardCase:
        return self.trace.case

    def set_outside(self, workspace: int, held: int) -> None:
        """What the caller takes between forward and backward, beyond outputs and their gradients: for then, and to
        the end of the step. CUDA graphs have a copy of these gradients, and no memory to spare for the caller."""
        if self.in_graphs:
            self.beside = workspace + held + self.given
            workspace = held = 0
        loosened = self.held - held
        self.outside_workspace, self._held["bytes"] = workspace, held
        self.set_workspace(self.lowered.outside, self.outside_workspace)
        self._plans = {key: plan for key, plan in self._plans.items()
                       if loosened < 0.02 * plan.peak or plan.cost == self.graph.base_cost}

    def assume_outside(self, careful: bool) -> None:
        """Until it is known: what losses take that make a few tensors as large as the outputs; or nothing."""
        self.set_outside(_CAREFUL * self.given if careful else 0, self.given if careful else 0)

    @property
    def held(self) -> int:
        return self._held["bytes"]

    def set_workspace(self, op: int, workspace: int) -> None:
        """Learns what an op takes. Plans that fit, and that were not held back by it, stay."""
        before = self.lowered.graph["ops"][op].get("workspace", 0)
        held_back = {key for key, plan in self._plans.items() if workspace < before and self._binds(plan, op)}
        self.lowered.graph["ops"][op]["workspace"] = workspace
        self._rebuild()
        for plan in self._made:
            plan.peak = self.graph.replay(plan.steps)["peak_bytes"]
        for key, plan in list(self._plans.items()):
            graph = self.activations if key[0] == "share" else self.graph
            if key[0] == "share":
                plan.budget = self._plannable(key[1])
            over = plan.budget is not None and graph.replay(plan.steps)["peak_bytes"] > plan.budget
            if over or key in held_back:
                del self._plans[key]

    def _binds(self, plan: Plan, op: int) -> bool:
        """Is the plan's peak where `op` runs, or close to that?"""
        in_use = self.graph.replay(plan.steps)["in_use"]
        there = max(in_use[i] for i, step in enumerate(plan.steps) if step == op)
        return plan.cost > self.graph.base_cost and there > 0.98 * plan.peak

    def _rebuild(self) -> None:
        self.json = json.dumps(self.lowered.graph)
        self._bytes = {value["name"]: value["bytes"] for value in self.lowered.graph["values"]}
        self.graph = _core.Graph(self.json)
        self._activations: _core.Graph | None = None
        self._activation_peak: int | None = None

    @property
    def activations(self) -> _core.Graph:
        """The graph with gradients that stay at no bytes: what shares are shares of."""
        if self._activations is None:
            graph = json.loads(self.json)
            free = self._gradients
            for value in graph["values"]:
                if value["name"] in free:
                    value["bytes"] = 0
            for op in graph["ops"]:
                marks = {o: i for o, i in op.get("overwrites", {}).items() if o not in free and i not in free}
                op["overwrites"] = marks
            self._activations = _core.Graph(json.dumps(graph))
        return self._activations

    @property
    def activation_peak(self) -> int:
        """Of eager's step, gradients that stay aside. Asked at each step: kept until something is learned."""
        if self._activation_peak is None:
            graph = json.loads(self.activations.to_json())
            for op in self.lowered.reusing:
                graph["ops"][op]["overwrites"] = {}
            for op, workspace in self._usual_workspace.items():
                graph["ops"][op]["workspace"] = workspace
            self._activation_peak = _core.Graph(json.dumps(graph)).base_peak
        return self._activation_peak

    def _gradients_that_stay(self) -> set[str]:
        """Names of values that are gradients, and no outputs, and there after the step."""
        program, values = self.lowered.program, self.lowered.graph["values"]
        outputs = {program.value_of_slot[s] for s in program.outputs if s >= 0}
        made = {program.value_of_slot[s] for s in program.gradients if s >= 0} - outputs
        return {values[value]["name"] for value in made if value >= 0 and values[value].get("keep")}

    def rise(self, op: int) -> int:
        """Bytes that an op is expected to add while it runs."""
        entry = self.lowered.graph["ops"][op]
        made = sum(self._bytes[name] for name in entry["outputs"])
        overwritten = sum(self._bytes[name] for name in entry.get("overwrites", {}).values())
        return made + entry.get("workspace", 0) - overwritten

    def plain(self) -> Plan:
        steps = self.graph.base_run
        return Plan(steps, self.graph.base_peak, self.graph.base_cost, self.graph.base_cost, None, "optimal")

    def plan_share(self, share: Fraction, search: Search) -> tuple[Plan | None, dict]:
        """A plan whose activations stay within a share of the plain step's."""
        return self._plan(("share", share), self._plannable(share), search)

    def share_of(self, share: Fraction) -> int:
        """Bytes for activations, as the device's allocator counts them."""
        return int((self.activation_peak + self.slack + self.beside) * share)

    def _plannable(self, share: Fraction) -> int:
        """What the activations of a plan may take; those of the plain step are the whole."""
        return self.activation_peak if share >= 1 else self.sure(self.share_of(share))

    def sure(self, budget: int) -> int:
        """What a plan may take so that the device stays within `budget`."""
        if self.device.type == "cpu":
            return budget
        return int(budget * (_SURE_IN_GRAPHS if self.in_graphs else _SURE_ON_CUDA)) - self.slack - self.beside

    @staticmethod
    def may_hold(peak: int) -> int:
        """Bytes of small gradients that CUDA graphs may hold until several are added at once."""
        return int(_HELD_SHARE * peak)

    def learn_slack(self, plan: Plan, over: int, is_first: bool) -> None:
        """A step took that much more than its ops do: CUDA's allocator hands out larger blocks than it is asked for,
        where it has such. A first step may also allocate what is allocated once."""
        slack = min(over, int(_MOST_FIRST_SLACK * plan.peak)) if is_first else over
        if slack > self.slack:
            self.set_slack(slack)

    def set_slack(self, slack: int) -> None:
        self.slack = slack
        self.set_workspace(self.lowered.outside, self.outside_workspace)  # plans that no longer fit go

    def plan_within(self, budget: int | None, search: Search) -> tuple[Plan | None, dict]:
        """A plan of at most `budget` bytes over what is there when the step begins; None: the smallest."""
        return self._plan(("bytes", budget), budget, search)

    def plan_from(self, text: str, source: str) -> Plan:
        """A plan file's. It has to be for this graph; what ops were measured to need may differ."""
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
        real = self.graph.replay(steps)
        return Plan(steps, real["peak_bytes"], real["cost"], None, real["peak_bytes"], "feasible")

    def _plan(self, key, budget: int | None, search: Search) -> tuple[Plan | None, dict]:
        if key in self._plans:
            return self._plans[key], {}
        answer = _ask(self._planned(key), budget, search)
        if self._smaller and self._is_held_back(key, answer, budget):
            answer = self._with_less_workspace(key, answer, budget, search)
        if answer["steps"] is None:
            return None, answer
        real = self.graph.replay(answer["steps"])
        plan = Plan(answer["steps"], real["peak_bytes"], real["cost"], answer["lower_bound"], budget, answer["status"])
        self._plans[key] = plan
        self._made.add(plan)
        return plan, answer

    def _planned(self, key) -> _core.Graph:
        return self.activations if key[0] == "share" else self.graph

    def _is_held_back(self, key, answer: dict, budget: int | None) -> bool:
        """By ops that could do with less workspace: is there no plan, or one that computes again, or is to be the
        smallest, with its peak where they run?"""
        if answer["steps"] is None:
            return True
        in_use = self._planned(key).replay(answer["steps"])["in_use"]
        limit = answer["peak_bytes"] if budget is None else budget
        return (budget is None or answer["cost"] > self.graph.base_cost) and any(
            step in self._smaller and level > 0.95 * limit for step, level in zip(answer["steps"], in_use))

    def _with_less_workspace(self, key, answer: dict, budget: int | None, search: Search) -> dict:
        """The plan where these ops take less, if it is the better one: cheaper for all that they take longer, or, of
        the smallest, smaller. Those that fit as usual stay as they are."""
        usual = {op: self._set_cost(op, other.cost, other.workspace) for op, other in self._smaller.items()}
        self._rebuild()
        found = _ask(self._planned(key), budget, search)
        smaller, self._smaller = self._smaller, {}
        is_better = found["steps"] is not None and (
            answer["steps"] is None or (found["cost"] < answer["cost"] if budget is not None else
                                        found["peak_bytes"] < _MUCH_SMALLER * answer["peak_bytes"]))
        taken = set()
        if is_better:
            in_use = self._planned(key).replay(found["steps"])["in_use"]
            limit = found["peak_bytes"] if budget is None else budget
            for op, other in smaller.items():
                most = max((level for step, level in zip(found["steps"], in_use) if step == op))
                if most - other.workspace + usual[op][1] > limit:
                    taken.add(op)
                    self._usual_workspace[op] = usual[op][1]
                    for call in other.calls:
                        self.program.set_apart(call, True)
        for op in smaller.keys() - taken:
            self._set_cost(op, *usual[op])
        self._rebuild()
        if not is_better:
            return answer
        log.info("%d convolutions run by algorithms that need less workspace", len(taken))
        replayed = self._planned(key).replay(found["steps"])
        return found | {"cost": replayed["cost"], "peak_bytes": replayed["peak_bytes"]}

    def _set_cost(self, op: int, cost: int, workspace: int) -> tuple[int, int]:
        """Returns what they were."""
        entry = self.lowered.graph["ops"][op]
        before = entry["cost"], entry.get("workspace", 0)
        entry["cost"], entry["workspace"] = cost, workspace
        return before

    def schedule(self, plan: Plan):
        return _torch.Schedule(self.program, plan.steps)


def _ask(graph: _core.Graph, budget: int | None, search: Search) -> dict:
    """Asks the solver, or the cache. More budget never costs more: plans made for other budgets compete."""
    text = json.dumps([graph.to_json(), search.seconds, search.iterations, search.seed])
    key = "plans 1 " + hashlib.sha256(text.encode()).hexdigest()
    known: dict[str, dict] = cache().get(key) or {}
    answer = known.get(str(budget))
    if answer is None:
        answer = graph.solve(budget, seconds=search.seconds, iterations=search.iterations, gap=_GOOD_ENOUGH,
                             threads=search.threads, seed=search.seed, start=_best(known, budget).get("steps") or [])
        known = known | {str(budget): answer}
        cache().put(key, known)
        cache().save()
    if budget is None:
        return answer
    best = _best(known, budget)
    return answer if not best or (answer["steps"] is not None and answer["cost"] <= best["cost"]) else (
        answer | {name: best[name] for name in ("steps", "peak_bytes", "cost")} | {"status": "feasible"})


def _best(known: dict[str, dict], budget: int | None) -> dict:
    """The cheapest of the plans that fit; for the smallest peak, that of the smallest."""
    fit = [a for a in known.values() if a["steps"] is not None and (budget is None or a["peak_bytes"] <= budget)]
    if budget is None:
        return min(fit, key=lambda a: (a["peak_bytes"], a["cost"]), default={})
    return min(fit, key=lambda a: (a["cost"], a["peak_bytes"]), default={})


def _structure(graph: dict) -> str:
    """A hash of ops, edges and sizes as captured: the same on any machine, whatever is measured there."""
    parts = [[(v["name"], v["bytes"]) for v in graph["values"]],
             [(op["name"], op["inputs"], op["outputs"]) for op in graph["ops"]]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
