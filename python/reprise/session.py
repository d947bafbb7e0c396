# SPDX-License-Identifier: Apache-2.0
"""Runs captured training steps inside a budget: chooses a plan, runs it, learns from what it took."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field, replace
from typing import Callable

import torch

from . import _core, _torch, memory
from .budget import Budget, parse_budget
from .capture.joint import BackwardCase, Capture
from .errors import InfeasibleBudget, PlanMismatch
from .planner import Plan, Search, TrainingStep

log = logging.getLogger("reprise")

# A step may take this much more than predicted before an op's workspace is learned anew.
_TOLERANCE = 1.005
# What a plan may take after the device ran out of memory, of what the one before was to take.
_TIGHTER = 0.85
# On CUDA: how many steps of a plan are measured and can be rolled back, and how far what is there when a step begins
# has to move, as a share of the peak, for another to be measured: that restarts the allocator's own peak for everybody.
_YOUNG = 3
_MOVED = 0.002


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


@dataclass
class Facts:
    """What was planned for a step, and what it took. Bytes are of the device, parameters and all."""

    step: TrainingStep
    plan: Plan
    budget: int | None = None  # bytes; None: the smallest
    resident: int = 0  # there when the last step began
    predicted: int = 0  # of the last step
    measured: int | None = None  # of the last step that was, at its worst moment
    measured_from: int = 0  # there when that began
    most: int = 0  # of any step so far
    outside: int | None = None  # at the worst moment between forward and backward, over `resident`, once seen
    released: int = 0  # by the caller between forward and backward: outputs of the step before
    timeline: list[int] | None = None  # bytes in use while each instruction of one step ran
    timeline_start: int = 0  # resident and released of that step
    timeline_released: int = 0
    steps: int = 0

    def predict(self) -> None:
        before, after, between = self.plan.parts(self.step)
        slack = self.step.slack
        self.predicted = self.resident + max(before + slack, after - self.released + slack,
                                       between + slack if self.outside is None else self.outside)


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

    def begin(self, subgraph: "Subgraph", started: int) -> None:
        if self.outstanding == 0:
            self.started, self.ran = started, []
        self.outstanding += 1
        if subgraph not in self.ran:
            self.ran.append(subgraph)

    def end(self) -> None:
        self.outstanding -= 1
        if self.outstanding == 0 and self.is_broken:
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

    def _left(self, ran: list["Subgraph"]) -> int | None:
        """Bytes for the step, over what is there when it begins; None: the smallest."""
        budget = self.budget(ran[0].facts.step.device)
        if budget.bytes is not None:
            return budget.bytes - self.started
        if budget.share is None:
            return None
        gradients = sum(g.facts.step.gradient_bytes for g in ran)
        plain = _together(ran, {g: g.facts.step.plain() for g in ran}) - gradients
        return gradients + int(plain * budget.share)

    def _divide(self, ran: list["Subgraph"], left: int) -> None:
        """All are loosened alike from their smallest peaks towards plain, as far as it fits together."""
        smallest = {graph: graph.facts.plan.peak for graph in ran}
        together = _together(ran, {graph: graph.facts.plan for graph in ran})
        if together > left:
            needed = self.started + together
            self.refusal = InfeasibleBudget(
                f"budget {_core.to_words(self.started + left)} can't be met: the model's {len(ran)} graphs take "
                f"{_core.to_words(needed)} together at the least ({needed} bytes)", needed)
            return
        search = replace(self.options.search, seconds=min(1.0, self.options.search.seconds or 1.0))
        self.shares, low, high = dict(smallest), 0.0, 1.0
        for share in (1.0, None, None, None, None, None):
            share = (low + high) / 2 if share is None else share
            asked = {g: int(smallest[g] + share * max(0, g.facts.step.graph.base_peak - smallest[g])) for g in ran}
            plans = {g: g.facts.step.plan_within(asked[g], search)[0] for g in ran}
            if all(plans.values()) and _together(ran, plans) <= left:
                self.shares, low = asked, share
            else:
                high = share
            if low == 1.0:
                return


def _together(graphs: list["Subgraph"], plans: dict["Subgraph", Plan]) -> int:
    """The peak of graphs whose forwards run in this order: what earlier ones keep and the gradients that later ones
    have made are there as well."""
    kept = [plans[g].kept(g.facts.step) for g in graphs]
    gradients = [g.facts.step.gradient_bytes for g in graphs]
    return max(sum(kept[:i]) + plans[g].peak + sum(gradients[i + 1:]) for i, g in enumerate(graphs))


class _Before:
    """What a step's forward changes: random states and inputs that it writes to."""

    def __init__(self, step: TrainingStep, tensors: list[torch.Tensor]):
        program = step.lowered.program
        changed = [call.arguments[p] for call in program.calls for p in call.bumped + call.scratch]
        self._copies = [(tensor, tensor.detach().clone()) for slot, tensor in zip(program.inputs, tensors)
                        if slot in changed]
        self._random = (torch.get_rng_state(), torch.cuda.get_rng_state(step.device))
        self._device = step.device

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, copy in self._copies:
                tensor.copy_(copy)
        torch.set_rng_state(self._random[0])
        torch.cuda.set_rng_state(self._random[1], self._device)


class Subgraph:
    """One captured graph. Called like the graph module it stands for."""

    def __init__(self, session: Session, module: torch.fx.GraphModule, inputs: list):
        self.session = session
        self._module = module
        self._capture = Capture(module, inputs)
        first = self._capture.trace()
        self._traces = {first.case: first}
        self.case = first.case
        self._steps: dict[tuple, TrainingStep] = {}
        self._prepared: dict[Plan, object] = {}
        self._tensors = [i for i, t in enumerate(first.inputs) if t is not None]
        self._leaves = [i for i in self._tensors if inputs[i].requires_grad and inputs[i].is_leaf]
        self._budget: Budget | None = None
        self._from_file: tuple[TrainingStep, Plan] | None = None
        self._most: int | None = None  # bytes for a plan, where the device had less than the budget
        self.uncounted = memory.uncounted(inputs[i] for i in self._tensors)
        self.is_differentiable = any(first.differentiable)
        self.facts: Facts | None = None

    def __call__(self, *args):
        self.session.calls += 1
        if not torch.is_grad_enabled():
            return self._module(*args)
        step = self.step(tuple(args[i].grad is None for i in self._leaves))
        started = memory.in_use(step.device) + self.uncounted
        tensors = [args[i] for i in self._tensors]
        if self.session.options.executor == "fx":
            returned = self._fx_step(step, self.choose(step, started), started)(*tensors)
        else:
            returned = self._run(step, started, tensors)
        constants = step.trace.output_constants
        return [constants[i] if t is None else t for i, t in enumerate(returned)]

    # Which captured step, which plan.
    def step(self, grads_absent: tuple[bool, ...] | None = None) -> TrainingStep:
        """The step with the backward that came last; `grads_absent` by leaf: gradients not there yet will stay."""
        grads_absent = (True,) * len(self._leaves) if grads_absent is None else grads_absent
        key = (self.case, grads_absent)
        if key not in self._steps:
            if self.case not in self._traces:
                self._traces[self.case] = self._capture.trace(self.case)
            trace = self._traces[self.case]
            kept = [True] * len(trace.inputs)
            for position, absent in zip(self._leaves, grads_absent):
                kept[position] = absent
            options = self.session.options
            self._steps[key] = TrainingStep(trace, name=options.name, grads_kept=kept, costs=options.costs,
                                            most_bytes=self._most_bytes(trace.device))
        return self._steps[key]

    def _most_bytes(self, device: torch.device) -> int | None:
        """What profiling may take: what the budget leaves."""
        budget = self.session.budget(device)
        return None if budget.bytes is None else max(0, budget.bytes - memory.in_use(device))

    def choose(self, step: TrainingStep, started: int) -> Plan:
        budget, search = self._named_budget(step), self.session.options.search
        if self._most is not None:
            plan, answer = step.plan_within(self._most, search)
            if plan is not None:
                return plan
            raise self._infeasible(step, budget, started, answer)
        if self.session.options.plan_file is not None:
            return self._loaded(step)
        if budget.is_smallest:
            plan, answer = step.plan_within(None, search)
        elif self.session.is_broken:
            plan, answer = self._choose_part(step, search)
        elif budget.share is not None:
            plan, answer = step.plan_share(budget.share, search)
        else:
            plan, answer = self._choose_within(step, step.sure(budget.bytes - started), search)
        if plan is None:
            plan = self._less_carefully(step, started)
        if plan is None:
            raise self._infeasible(step, budget, started, answer)
        return plan

    def _less_carefully(self, step: TrainingStep, started: int) -> Plan | None:
        """Where nothing fits because the loss might need a lot: as if it needed little."""
        if step.knows_outside or step.is_daring or not step.given:
            return None
        step.assume_outside(careful=False)
        step.is_daring = True
        try:
            return self.choose(step, started)
        except InfeasibleBudget:
            return None

    def _choose_within(self, step: TrainingStep, left: int, search: Search) -> tuple[Plan | None, dict]:
        current = self.facts.plan if self.facts is not None and self.facts.step is step else None
        if current is not None and current.peak <= left and not self._too_careful(step, current, left):
            return current, {}
        return step.plan_within(left, search) if left > 0 else (None, {})

    def _choose_part(self, step: TrainingStep, search: Search) -> tuple[Plan | None, dict]:
        """Of a model in several graphs: the smallest plan until all are known, then this one's part."""
        if self.session.refusal is not None:
            raise self.session.refusal
        shares = self.session.shares
        if shares is None or self not in shares:
            return step.plan_within(None, replace(search, seconds=min(1.0, search.seconds or 1.0)))
        return step.plan_within(shares[self], search)

    def _loaded(self, step: TrainingStep) -> Plan:
        """The plan file's. A step with another backward, or with gradients there, is planned within the same peak."""
        path = self.session.options.plan_file
        if self._from_file is not None and self._from_file[0] is not step:
            search = self.session.options.search
            return step.plan_within(self._from_file[1].peak, search)[0] or step.plan_within(None, search)[0]
        if self._from_file is None:
            try:
                with open(path, encoding="utf-8") as file:
                    self._from_file = (step, step.plan_from(file.read(), path))
            except OSError as error:
                raise PlanMismatch(f"{path}: can't be read: {error.strerror}") from None
        return self._from_file[1]

    def _named_budget(self, step: TrainingStep) -> Budget:
        if self._budget is None:
            self._budget = self.session.budget(step.device)
        return self._budget

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
        binding = answer.get("binding_op")
        what = f"; '{binding}' needs {words(answer['smallest_peak_bound'])} while it runs" if binding else ""
        if budget.bytes is not None:
            reached = None if smallest is None else smallest + started
            hint = "" if reached is None else f"; the smallest plan found takes {words(reached)} ({reached} bytes)"
            return InfeasibleBudget(f"budget {words(budget.bytes)} can't be met: {words(started)} are in use before the "
                                    f"step begins{what}{hint}", reached)
        base = step.activation_peak
        hint = "" if smallest is None else f"; the smallest plan found takes {100 * smallest / base:.1f}%"
        return InfeasibleBudget(f"budget {budget.text} of {words(base)} activations can't be met{what}{hint}",
                                None if smallest is None else smallest + step.gradient_bytes + started)

    # Running it.
    def _run(self, step: TrainingStep, started: int, tensors: list[torch.Tensor]) -> list:
        """Where the device runs out of memory, all is put back, and the step runs by a plan that takes less."""
        before = _Before(step, tensors) if step.device.type == "cuda" and self._is_young(step) else None
        while True:
            plan = self.choose(step, started)
            prepared = self._prepare(step, plan, started)
            self.session.begin(self, started)
            try:
                return _torch.run_step(prepared, tensors)
            except torch.OutOfMemoryError:
                if before is None:
                    raise
                before.restore()
                self._tighten(plan)

    def _is_young(self, step: TrainingStep) -> bool:
        return self.facts is None or self.facts.step is not step or self.facts.steps < _YOUNG

    def _tighten(self, plan: Plan) -> None:
        self._most = int(min(plan.peak, self._most or plan.peak) * _TIGHTER)
        log.warning("out of memory at a planned peak of %s: planning again for %s", _core.to_words(plan.peak),
                    _core.to_words(self._most))

    def _fx_step(self, step: TrainingStep, plan: Plan, started: int):
        from .fx_executor import FxStep

        self._note_plan(step, plan, started)
        self.session.ran = [self]
        if plan not in self._prepared:
            self._prepared[plan] = FxStep(step, plan)
        return self._prepared[plan]

    def _note_plan(self, step: TrainingStep, plan: Plan, started: int) -> Facts:
        """The facts of this plan, with what is expected of a step that begins now."""
        if self.facts is None or self.facts.plan is not plan or self.facts.step is not step:
            self.facts = Facts(step, plan)
        budget = self._named_budget(step)
        self.facts.resident = started
        if not self.session.is_broken:
            self.facts.budget = budget.bytes if budget.share is None else (
                started + step.gradient_bytes + step.share_of(budget.share))
            self.facts.predict()
        return self.facts

    def _prepare(self, step: TrainingStep, plan: Plan, started: int):
        facts = self._note_plan(step, plan, started)
        on_cpu, is_first = step.device.type == "cpu", facts.timeline is None
        is_young = not on_cpu and facts.steps < _YOUNG
        has_moved = not on_cpu and abs(started - facts.measured_from) > _MOVED * facts.predicted
        is_usual = not (is_first or is_young or has_moved)
        if is_usual and plan in self._prepared:
            return self._prepared[plan]

        def finished(taken: _torch.Taken):
            try:
                facts.steps += taken.whole
                if taken.whole and taken.peak:
                    self._learn(facts, taken)
                self.session.end()
            except Exception as error:  # called from a destructor: there is nobody to throw to
                warnings.warn(f"Reprise could not learn from a step: {error!r}")

        def other(tangents, autocast):
            self.case = BackwardCase(tuple(None if t is None else tuple(t) for t in tangents), autocast)
            log.info("backward is another one than planned: captured again")
            another = self.step()
            return another.schedule(self.choose(another, facts.resident))

        def tighter():
            self._tighten(plan)
            return step.schedule(self.choose(step, facts.resident))

        prepared = _torch.Prepared(
            schedule=step.schedule(plan), tangents=[None if s is None else list(s) for s in step.case.strides],
            autocast=step.case.autocast, other=other, finished=finished,
            tighter=tighter if is_young else None, measured=step.device if on_cpu or not is_usual else None,
            recorded=is_first)
        if is_usual:
            self._prepared[plan] = prepared
        return prepared

    def _learn(self, facts: Facts, taken: _torch.Taken) -> None:
        step, peak = facts.step, taken.peak + self.uncounted
        facts.measured, facts.measured_from, facts.most = peak, facts.resident, max(facts.most, peak)
        if taken.peaks and facts.timeline is None:
            self._learn_from(facts, taken)
        if self._is_alone:
            facts.outside = taken.outside_peak + self.uncounted - facts.resident
            facts.released = max(0, taken.forward_end + step.given + step.held - taken.backward_begin)
        if self._is_alone and step.device.type == "cuda":
            facts.predict()
            step.learn_slack(facts.plan, max(0, peak - facts.predicted) + step.slack, facts.steps == 1)

    @property
    def _is_alone(self) -> bool:
        """Was what was measured of this step alone?"""
        return self.session.outstanding == 1 and not self.session.is_broken

    def _learn_from(self, facts: Facts, taken: _torch.Taken) -> None:
        """What the caller does between forward and backward, and what ops really take."""
        step = facts.step
        facts.timeline = [level + self.uncounted for level in taken.peaks]
        facts.timeline_start, facts.timeline_released = facts.resident, facts.released
        if self.session.ran[-1] is self:  # nothing of ours ran in between
            grown = taken.backward_begin - taken.forward_end - step.given
            held = max(step.held if step.knows_outside else 0, grown)
            step.set_outside(max(0, taken.outside_peak - taken.forward_end - step.given - held), held)
            step.knows_outside = True
        if self._is_alone:
            self._learn_workspace(facts, [peak - level for peak, level in zip(taken.peaks, taken.before)])

    def _learn_workspace(self, facts: Facts, rises: list[int]) -> None:
        """Where an op took more than it did alone, the plan did not know: it is told, and plans are made anew."""
        step, plan = facts.step, facts.plan
        over: dict[int, int] = {}
        for instruction, rise, level in zip(step.schedule(plan).instructions, rises, facts.timeline):
            op = plan.steps[instruction.step]
            is_call = instruction.kind == _torch.Instruction.Kind.call
            if not is_call or op < 0 or level <= facts.predicted * _TOLERANCE:
                continue
            more = rise - step.rise(op)
            if more > 0:
                over[op] = max(over.get(op, 0), more)
        if not over:
            return
        worst = max(over, key=over.get)
        log.warning("%d ops took more than when they ran alone, '%s' by %s: planning again", len(over),
                    step.lowered.graph["ops"][worst]["name"], _core.to_words(over[worst]))
        for op, more in over.items():
            step.set_workspace(op, step.lowered.graph["ops"][op].get("workspace", 0) + more)
