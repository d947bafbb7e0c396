# SPDX-License-Identifier: Apache-2.0
"""How processes that measure at once keep out of each other's way. Each says what it is now, to the one that started it,
and goes on when it is answered."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import AbstractContextManager, contextmanager
from typing import Callable, Iterator

import torch

HERE = b"h"  # uses the GPU, and is stopped while another is alone
AWAY = b"w"  # leaves the GPU alone, as it captures or compiles: it goes on while another is alone with the GPU
PLANS = b"p"  # is away, with a time limit: nothing stops it
ALONE = b"a"  # with the GPU
TIMED = b"t"  # with the GPU for sure: those that are away are stopped as well
SOLE = b"s"  # on the machine, for what depends on the host: those that plan are waited for, too
GO = b"g"  # the answer
STOPPED_FOR = {ALONE: (HERE,), TIMED: (HERE, AWAY), SOLE: (HERE, AWAY, PLANS)}

Being = Callable[[bytes], AbstractContextManager]


class Voice:
    """Speaks to the process that started this one. Where that is gone, this one ends."""

    def __init__(self):
        self._out = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is nothing that is said
        self._now = HERE

    @contextmanager
    def being(self, what: bytes) -> Iterator[None]:
        """What is inside of being alone is part of that."""
        before = self._now
        if before in STOPPED_FOR or before == what:
            yield
            return
        self._say(what)
        try:
            if what in STOPPED_FOR:
                wait_until_quiet()
            yield
        finally:
            self._say(before)

    def _say(self, word: bytes) -> None:
        left = signal.alarm(0)  # who waits for others takes no time
        try:
            os.write(self._out, word)
            if os.read(sys.stdin.fileno(), 1) != GO:
                raise BrokenPipeError
        except BrokenPipeError:
            sys.exit("nobody listens any more")
        self._now = word
        signal.alarm(left)


def wait_until_quiet() -> None:
    """Until the GPU, where one is used, does nothing for others: kernels that spin for a millisecond then all take the
    same time."""
    while torch.cuda.is_initialized():
        spans = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(10)]
        for start, end in spans:
            start.record()
            torch.cuda._sleep(2_000_000)
            end.record()
        torch.cuda.synchronize()
        taken = [start.elapsed_time(end) for start, end in spans]
        if max(taken) < 1.2 * min(taken):
            return
        time.sleep(0.05)
