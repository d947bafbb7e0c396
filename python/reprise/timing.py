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

_TIMES = 10  # that an operation runs to be timed on CUDA


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
    def _in_vain(self) -> float:
        return self._with_others(lambda: None)

    def seconds(self, run: Callable[[], None]) -> float:
        return max(0.0, self._with_others(run) - self._in_vain)

    def _with_others(self, run: Callable[[], None]) -> float:
        def work() -> None:
            for _ in range(_TIMES):
                self._others.sum()
                run()

        graph = _torch.CudaGraph(self._memory)
        graph.record(work)
        return min(_device_seconds(graph.replay, self._device) for _ in range(3)) / _TIMES


def seconds(run: Callable[[int], float], once: float, device: torch.device, timer: GraphTimer | None) -> float:
    """Of a run, that took `once` before; `run` takes how many, and returns seconds a run."""
    if device.type != "cuda":
        return once if once > 0.02 else run(max(1, min(30, math.ceil(0.003 / max(once, 1e-6)))))
    if timer is not None:
        try:
            return timer.seconds(lambda: run(1))
        except RuntimeError as error:  # as it waits for the device, or copies from the host
            log.info("an operation can't be in a CUDA graph: %s", first_line(error))
    return _device_seconds(lambda: run(_TIMES), device) / _TIMES


def _device_seconds(run: Callable[[], None], device: torch.device) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1e3
