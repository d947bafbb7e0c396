# SPDX-License-Identifier: Apache-2.0
"""Measures one network in a process of its own: each method's memory and time.

What a step is, and what is measured of it: `PROTOCOL` in report.py.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import reprise
from reprise import _core, memory, planner
from reprise.cache import Cache
from reprise.capture.joint import Capture
from reprise.largest_batch import largest_that_fits
from reprise.words import first_line

from .jobs import MOST, Job, Options, boot
from .networks import Network, in_channels_last, networks_of
from .results import append
from .turns import ALONE, AWAY, HERE, PLANS, SOLE, TIMED, Being, Voice, wait_until_quiet

MIB = 1 << 20
SET_UP, MEASURED, WARM = 2, 6, 2  # steps that may profile and plan; whose memory is measured; before a round's time is
ROUNDS, MOST_ROUNDS = 3, 6  # of steps that are timed: more, where …
ALIKE = 1.005  # … the two that took the least took times that are further apart: one was disturbed
TRIES = 5  # to train inside the limit
PR_SET_PDEATHSIG = 1  # Linux's


class Summed(nn.Module):
    """A network with its loss, the sum of its outputs."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, *inputs):
        return self.network(*inputs).sum()


class Bench:
    """A network on a device. What is timed is timed while `being` alone."""

    def __init__(self, network: Network, options: Options, being: Being = nullcontext):
        self.network, self.options, self.being = network, options, being
        self.on_cuda = options.on_cuda

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        with torch.device(self.options.device):
            return Summed(self.network.build()).train()

    def inputs(self, batch: int | None = None) -> tuple[torch.Tensor, ...]:
        with torch.device(self.options.device):
            return self.network.inputs(batch or self.network.batch)

    def free(self) -> None:
        torch._dynamo.reset()
        gc.collect()
        if self.on_cuda:
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()

    def seconds(self, step: Callable[..., None], steps: int, batch: int | None = None) -> list[float]:
        """Of each step, without what its inputs take to make. On a GPU by events in its stream, with steps one upon
        the other as in training: nothing waits for the device in between."""
        if not self.on_cuda:
            return [self.clocked(step, self.inputs(batch)) for _ in range(steps)]
        spans = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(steps)]
        for start, end in spans:
            inputs = self.inputs(batch)
            start.record()
            step(*inputs)
            end.record()
            del inputs  # before there are others
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in spans]

    def milliseconds(self, step: Callable[..., None]) -> tuple[float, float]:
        """Of a step: the least of the rounds' medians; and of the host, from the first step of such a round to the end
        of the last."""
        rounds: list[tuple[float, float]] = []
        while len(rounds) < ROUNDS or (len(rounds) < MOST_ROUNDS and rounds[1][0] > ALIKE * rounds[0][0]):
            wait_until_quiet()
            began = time.perf_counter()
            taken = self.seconds(step, WARM + self.options.steps)
            host = (time.perf_counter() - began) / len(taken)
            rounds.append((1000 * statistics.median(taken[WARM:]), 1000 * host))
            rounds.sort()
        return rounds[0]

    def clocked(self, step: Callable[..., None], inputs: tuple[torch.Tensor, ...]) -> float:
        began = time.perf_counter()
        step(*inputs)
        if self.on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def compiled(self, model: nn.Module, budget: int | str) -> nn.Module:
        return reprise.compile(model, budget, plan_seconds=self.options.plan_seconds, executor=self.options.executor)

    def method(self, method: str, budget: str) -> dict:
        """The figures of one method."""
        if method == "channels-last":
            other = Bench(in_channels_last(self.network), self.options, self.being)
            return other.method("eager", "") if budget == "eager" else other.method("reprise", budget)
        model = self.build()
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        if method == "eager":
            return self.figures(model)
        if method == "checkpoint":
            for block in self.network.blocks(model.network):
                block.forward = checkpointed(block.forward)
            return self.figures(model)
        if method == "compile":
            with torch._functorch.config.patch(activation_memory_budget=float(budget)):
                return self.figures(torch.compile(model))
        return self.reprise(model, budget)

    def reprise(self, model: nn.Module, budget: str) -> dict:
        there = memory.in_use(self.options.device)  # weights, gradients, buffers
        model = self.compiled(model, self.asked_for(budget, there))
        is_graphed = self.options.executor in (None, "cuda_graph")  # and the host has next to nothing to do
        figures = self.figures(model, TIMED if is_graphed else SOLE)
        report = model.report()
        peak = max(figures["peak_mib"], report.measured_bytes / MIB)  # CUDA graphs' shows while they are recorded
        bound = report.lower_bound and report.lower_bound / report.base_cost - 1
        return figures | {"mib": peak - there / MIB, "peak_mib": peak,
                          "planned": report.overhead, "bound": bound,
                          "predicted_mib": report.predicted_bytes / MIB, "executor": report.executor,
                          "graphs_mib": report.graphs_bytes / MIB,
                          "graphs_reserved_mib": report.graphs_reserved_bytes / MIB,
                          "budget_mib": None if report.budget_bytes is None else report.budget_bytes / MIB}

    def asked_for(self, budget: str, there: int) -> int | str:
        """What `reprise.compile` is given, where so many bytes are there already."""
        if budget == "ogc":
            return there + int(self.network.ogc.mib * MIB)
        if budget.endswith("MiB"):
            return there + int(budget.removesuffix(" MiB")) * MIB
        return budget

    def figures(self, model: nn.Module, timed: bytes = SOLE) -> dict:
        """Memory: the highest peak of some steps, less what is there before or after a step, whichever is more; of
        these the least."""
        def step(*inputs: torch.Tensor) -> None:
            torch._foreach_zero_(gradients)
            model(*inputs).backward()

        gradients = [parameter.grad for parameter in model.parameters()]
        with memory.measure(self.options.device) as set_up:
            first, *_ = [self.clocked(step, self.inputs()) for _ in range(SET_UP)]
        if self.on_cuda:
            torch.cuda.empty_cache()
        peaks, there = [], []
        for _ in range(MEASURED):
            with memory.measure(self.options.device) as taken:
                self.clocked(step, self.inputs())
            peaks.append(taken.peak)
            there.append(max(taken.start, memory.in_use(self.options.device)))
        reserved = memory.reserved(self.options.device) or max(peaks)
        with self.being(timed):
            ms, host_ms = self.milliseconds(step)
        return {"mib": (max(peaks) - min(there)) / MIB, "peak_mib": max(peaks) / MIB, "base_mib": min(there) / MIB,
                "reserved_mib": reserved / MIB, "ms": ms, "host_ms": host_ms, "first_s": first,
                "first_mib": set_up.peak / MIB, "parameters": len(gradients)}

    def max_batch(self, method: str) -> dict:
        """The largest batch that trains inside the limit, weights and gradients included, and how it trains there.
        Where Reprise's first answer takes more, which a step may while it profiles, it is a little less."""
        plain, limit = self.build(), self.options.limit
        if self.on_cuda:
            total = torch.cuda.get_device_properties(self.options.device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, MOST * limit / total))
        if method == "reprise":
            batch = reprise.max_batch(plain, self.inputs(), limit, plan_seconds=min(2.0, self.options.plan_seconds))
        else:
            batch = largest(lambda batch: self.fits(plain, batch), self.network.batch)
        for _ in range(TRIES):
            self.free()
            model = self.compiled(plain, limit) if method == "reprise" else plain
            peak, seconds = self.train(model, batch, MEASURED, self.options.steps)
            if peak <= limit:
                break
            tried, batch = batch, batch - max(1, batch // 100)
        else:
            raise RuntimeError(f"a batch of {tried} takes {peak} bytes, more than the limit of {limit}")
        reserved = memory.reserved(self.options.device) or peak
        return {"max_batch": batch, "peak_mib": peak / MIB, "limit_mib": limit / MIB, "reserved_mib": reserved / MIB,
                "images_per_s": batch / statistics.median(seconds)}

    def fits(self, model: nn.Module, batch: int) -> bool:
        self.free()
        try:
            return self.train(model, batch, 2)[0] <= self.options.limit
        except torch.OutOfMemoryError:
            return False

    def train(self, model: nn.Module, batch: int, steps: int, timed: int = 0) -> tuple[int, list[float]]:
        """With an optimizer: the peak over all steps, and the seconds of each of those that are timed."""
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def update(*inputs: torch.Tensor) -> None:
            optimizer.zero_grad()
            model(*inputs).backward()
            optimizer.step()

        with memory.measure(self.options.device) as taken:
            self.seconds(update, steps, batch)
            with self.being(TIMED) if timed else nullcontext():
                seconds = self.seconds(update, timed, batch)
        return taken.peak, seconds


def checkpointed(forward: Callable) -> Callable:
    def run(*args, **kwargs):
        args = [list(arg) if isinstance(arg, list) else arg for arg in args]  # DenseNet appends to it before backward
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return run


def largest(fits: Callable[[int], bool], near: int) -> int:
    found = largest_that_fits(fits, near)
    if not found:
        raise RuntimeError("not even a batch of 1 fits")
    return found


def attempt(bench: Bench, job: Job) -> dict:
    """The figures of a job, or why there are none."""
    method, budget = job
    signal.alarm(bench.options.timeout)
    try:
        figures = bench.max_batch(budget) if method == "max-batch" else bench.method(method, budget)
    except Exception as error:
        figures = {"error": f"{type(error).__name__}: {first_line(error)}"}
    finally:
        signal.alarm(0)
    return figures


def measure(name: str, jobs: list[Job], options: Options, being: Being = nullcontext) -> None:
    """Appends a line for each job."""
    def too_long(*_):
        raise TimeoutError(f"took longer than {options.timeout} s")

    signal.signal(signal.SIGALRM, too_long)
    network = networks_of(options.tiny)[name]
    bench = Bench(network, options, being)
    facts = {"batch": network.batch, "shape": network.shape, "settings": options.settings(), "boot": boot()}
    for job in jobs:
        line = {"network": name, "method": job[0], "budget": job[1], **facts, **attempt(bench, job),
                "at": round(time.time())}
        append(Path(options.results), line)
        bench.free()


def inside(being: Being, what: bytes, function: Callable) -> Callable:
    def run(*args, **kwargs):
        with being(what):
            return function(*args, **kwargs)
    return run


def main(told: str) -> None:
    name, jobs, given = json.loads(told)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # one that is stopped would never see its parent gone
    voice, options = Voice(), Options(**given)
    if options.on_cuda:
        torch.cuda.set_device(torch.device(options.device).index or 0)
    tell_turns(voice.being)
    if all(method == "compile" for method, _ in jobs):
        os.nice(10)  # plans have time limits
        tell_turns_of_inductor(voice.being)
    measure(name, [tuple(job) for job in jobs], options, voice.being)


def tell_turns(being: Being) -> None:
    """Has Reprise say when it leaves the GPU alone, and when it is to be alone with it. Who writes to the cache is not
    to be stopped: others would wait for it."""
    planner.add_costs = inside(being, ALONE, planner.add_costs)
    Capture.trace = inside(being, AWAY, Capture.trace)
    _core.Graph.solve = inside(being, PLANS, _core.Graph.solve)
    Cache.save = inside(being, PLANS, Cache.save)


def tell_turns_of_inductor(being: Being) -> None:
    from torch._inductor import compile_fx  # takes seconds
    from torch._inductor.runtime.benchmarking import benchmarker

    compile_fx.compile_fx = inside(being, AWAY, compile_fx.compile_fx)
    benchmarker.benchmark_gpu = inside(being, HERE, benchmarker.benchmark_gpu)  # asked while it compiles


if __name__ == "__main__":
    main(sys.argv[1])
