# SPDX-License-Identifier: Apache-2.0
"""What a plan is expected to take, what its steps took, and what is learned from the difference."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from . import _torch
from .planner import Plan, TrainingStep
from .words import bytes_words

log = logging.getLogger("reprise")

# On CUDA: how many steps of a plan are measured and can be rolled back.
_YOUNG = 3
# A step may take this much more than predicted before an op's workspace is learned anew.
_TOLERANCE = 1.005


@dataclass(frozen=True)
class Timeline:
    """Of one step, which was measured by instruction."""

    levels: list[int]  # bytes in use while each ran
    resident: int  # there when it began
    released: int  # by the caller between forward and backward


@dataclass
class Facts:
    """What was planned for a step, and what it took. Bytes are of the device, parameters and all."""

    plan: Plan
    budget: int | None = None  # bytes; None: the smallest
    resident: int = 0  # there when the last step began
    predicted: int = 0  # of the last step
    measured: int | None = None  # of the last step that was, at its worst moment
    measured_from: int = 0  # there when that began
    outside: int | None = None  # at the worst moment between forward and backward, over `resident`, once seen
    released: int = 0  # by the caller between forward and backward: outputs of the step before
    timeline: Timeline | None = None
    steps: int = 0  # that were measured
    is_graphed: bool = False  # the last step was run by CUDA graphs
    graphs_bytes: int = 0  # that they take at the worst moment
    graphs_expected: int | None = None  # … and were predicted to, before any was recorded

    @property
    def step(self) -> TrainingStep:
        return self.plan.step

    @property
    def is_settled(self) -> bool:
        """Enough of its steps were measured."""
        return self.steps >= _YOUNG

    def predict(self) -> None:
        forward, backward, outside = self.plan.levels
        slack, caller = self.step.slack, self.step.caller_bytes
        if self.is_graphed:
            self.predicted = self.resident + self.graphs_expected + caller
        else:
            self.predicted = self.resident + max(forward + slack, backward - self.released + slack,
                                                 outside + slack + caller if self.outside is None else self.outside)

    def note_replay(self) -> None:
        """It takes what its recording showed."""
        self.measured = self.resident + self.graphs_bytes + self.step.caller_bytes

    def learn(self, taken: _torch.Taken, uncounted: int, *, is_alone: bool, is_last: bool) -> None:
        """`uncounted`: bytes that the allocator does not see. `is_alone`: no other forward ran in the step;
        `is_last`: none ran between this one and its backward."""
        step, peak = self.step, taken.peak + uncounted
        self.steps += 1
        self.measured, self.measured_from = peak, self.resident
        if taken.peaks and self.timeline is None:
            self.timeline = Timeline([level + uncounted for level in taken.peaks], self.resident, self.released)
            if is_last:
                self.learn_outside(taken)
            if is_alone and not step.in_graphs:  # their recording tells better
                self._learn_workspace(taken)
        if is_alone:
            self.outside = taken.outside_peak + uncounted - self.resident
            self.released = max(0, taken.forward_end + step.tangent_bytes + step.held - taken.backward_begin)
        if is_alone and step.device.type == "cuda" and not step.in_graphs:
            self.predict()
            step.learn_slack(self.plan, max(0, peak - self.predicted) + step.slack, self.steps == 1)

    def learn_recorded(self, taken: _torch.Taken, resident: int, is_first: bool) -> None:
        """From a recording as CUDA graphs, before a step has run. The first shows what was assumed until then."""
        self.resident, self.graphs_bytes, self.is_graphed = resident, taken.inside_peak - resident, True
        self.steps += 1
        self.timeline = Timeline(list(taken.peaks), resident, self.released)
        expected = self.plan.peak + self.step.slack
        if self.graphs_expected is None:
            self.graphs_expected = expected
        self.predicted = resident + expected
        self._learn_workspace(taken)
        slack = self.graphs_bytes - self.plan.peak  # with the workspaces that it knows by now
        self.step.set_slack(max(0 if is_first else self.step.slack, slack))

    def learn_outside(self, taken: _torch.Taken) -> None:
        """What the caller does between forward and backward."""
        step = self.step
        grown = taken.backward_begin - taken.forward_end - step.tangent_bytes
        held = max(step.held if step.knows_outside else 0, grown)
        step.learn_outside(max(0, taken.outside_peak - taken.forward_end - step.tangent_bytes - held), held)

    def _learn_workspace(self, taken: _torch.Taken) -> None:
        """Where an op took more than it did alone, the plan did not know: it is told, and plans are made anew."""
        step, plan = self.step, self.plan
        over: dict[int, int] = {}
        for instruction, before, top, level in zip(step.schedule(plan).instructions, taken.before, taken.peaks,
                                                   self.timeline.levels):
            op = plan.steps[instruction.step]
            is_call = instruction.kind == _torch.Instruction.Kind.call
            if not is_call or op < 0 or level <= self.predicted * _TOLERANCE:
                continue
            more = top - before - step.rise(op, plan)
            if more > 0:
                over[op] = max(over.get(op, 0), more)
        if not over:
            return
        worst = max(over, key=over.get)
        log.warning("%d ops took more than when they ran alone, '%s' by %s: planning again", len(over),
                    step.lowered.graph["ops"][worst]["name"], bytes_words(over[worst]))
        for op, more in over.items():
            step.learn_workspace(op, more)
