# SPDX-License-Identifier: Apache-2.0
"""How operations are timed inside CUDA graphs, on a device that only counts."""

from __future__ import annotations

import pytest
import torch

from reprise import timing

FLUSH = 2e-5  # seconds


class Clock:
    """A device, on which graphs take as long as what they were recorded from."""

    def __init__(self, monkeypatch):
        self.now, self.runs = 0.0, 0
        monkeypatch.setattr(timing, "_device_seconds", self.seconds)
        monkeypatch.setattr(timing._torch, "CudaGraph", lambda memory: Graph(self))
        self.timer = object.__new__(timing.GraphTimer)
        self.timer.__dict__ |= {"_device": torch.device("cpu"), "_memory": None, "_others": self, "bytes": 0}

    def sum(self) -> None:
        self.now += FLUSH

    def op(self, seconds: float) -> None:
        self.now += seconds
        self.runs += 1

    def seconds(self, run, device) -> float:
        began = self.now
        run()
        return self.now - began


class Graph:
    def __init__(self, clock: Clock):
        self._clock = clock

    def record(self, work) -> None:
        began, runs = self._clock.now, self._clock.runs
        work()
        self._taken, self._runs = self._clock.now - began, self._clock.runs - runs
        self._clock.now, self._clock.runs = began, runs  # nothing has run

    def replay(self) -> None:
        self._clock.now += self._taken
        self._clock.runs += self._runs


@pytest.mark.parametrize("taken, runs", [(1e-5, 1 + 3 * 10), (3e-3, 1 + 3 * 4), (0.02, 1 + 3 * 1)])
def test_what_takes_long_runs_less_often(taken, runs, monkeypatch):
    """One run tells how many of them take a hundredth of a second together: of 3.02 ms these are 4, of 20 ms one."""
    clock = Clock(monkeypatch)
    assert clock.timer.seconds(lambda: clock.op(taken)) == pytest.approx(taken, rel=1e-6)
    assert clock.runs == runs
