# SPDX-License-Identifier: Apache-2.0
"""Times operations, on CUDA as they run inside of CUDA graphs."""

from __future__ import annotations

import logging
import math
from functools import cached_property
from typing import Callable

import torch

from . import _torch
from .words import first_line

log = logging.getLogger("reprise")

_TIMES = 10  # that a short operation runs to be timed on CUDA
_LONG_ENOUGH = 0.01  # seconds that runs to be timed take together, or one of them


class GraphTimer:
    """Times operations in CUDA graphs, none of their arguments being in the device's cache: what is computed again
    reads what was kept long ago."""

    def __init__(self, device: torch.device, most_bytes: int | None):
        self._device = device
        size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
        self.bytes = size if most_bytes is None or size < most_bytes // 2 else 0  # that it takes itself

    @cached_property
    def _memory(self) -> _torch.GraphMemory:
        return _torch.GraphMemory(self._device)

    @cached_property
    def _others(self) -> torch.Tensor:
        """What is read to have nothing else in the cache; empty where there is no room for it."""
        return torch.zeros(self.bytes, dtype=torch.uint8, device=self._device).view(torch.float32)

    @cached_property
    def _flush_seconds(self) -> float:
        return self._least_seconds(self._recorded(lambda: None, _TIMES), _TIMES)

    def seconds(self, run: Callable[[], None]) -> float:
        """Of a run: of a long one by itself, of a short one among several, as graphs take time to begin."""
        graph = self._recorded(run, 1)
        times = times_for(_device_seconds(graph.replay, self._device))
        if times > 1:
            graph = self._recorded(run, times)
        return max(0.0, self._least_seconds(graph, times) - self._flush_seconds)

    def _recorded(self, run: Callable[[], None], times: int) -> _torch.CudaGraph:
        """So many runs, with the cache emptied before each."""
        def work() -> None:
            for _ in range(times):
                self._others.sum()
                run()

        graph = _torch.CudaGraph(self._memory)
        graph.record(work)
        return graph

    def _least_seconds(self, graph: _torch.CudaGraph, times: int) -> float:
        return min(_device_seconds(graph.replay, self._device) for _ in range(3)) / times


def times_for(once: float) -> int:
    """How often to run what took so many seconds."""
    return max(1, min(_TIMES, math.ceil(_LONG_ENOUGH / max(once, 1e-9))))


def seconds(run: Callable[[int], float], once: float, device: torch.device, timer: GraphTimer | None) -> float:
    """Of a run, that took `once` before; `run` takes how many, and returns seconds a run."""
    if device.type != "cuda":
        return once if once > 0.02 else run(max(1, min(30, math.ceil(0.003 / max(once, 1e-6)))))
    if timer is not None:
        try:
            return timer.seconds(lambda: run(1))
        except RuntimeError as error:  # as it waits for the device, or copies from the host
            log.info("an operation can't be in a CUDA graph: %s", first_line(error))
    times = times_for(_device_seconds(lambda: run(1), device))
    return _device_seconds(lambda: run(times), device) / times


def _device_seconds(run: Callable[[], None], device: torch.device) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1e3
