# SPDX-License-Identifier: Apache-2.0
"""Runs what is to be measured in processes, several at once, of which those stand still that would disturb one."""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Callable, Collection

import torch

from .jobs import MOST, PLAIN, SWEPT, Job, Options, boot
from .results import append, key, read
from .turns import GO, HERE, PLANS, SOLE, STOPPED_FOR

ROOT = Path(__file__).resolve().parents[2]
STOPPED = 0.05  # seconds in which a process that is told to stop has
COMPILERS = 4  # processes that torch.compile starts for itself
FIRST = [PLAIN, ("checkpoint", ""), ("channels-last", "eager")]
MANY = 700  # parameters of a network that torch.compile takes longer for than for all else


@dataclass
class Task:
    """Jobs of a network that one process does."""

    name: str
    jobs: list[Job]

    @property
    def is_largest_batch(self) -> bool:
        return any(method == "max-batch" for method, _ in self.jobs)

    def missing(self, results: Path, settings: dict) -> "Task":
        there = {key(line) for line in read(results)
                 if line.get("settings") == settings and (line["method"] != "eager" or line["boot"] == boot())}
        return Task(self.name, [job for job in self.jobs if (self.name, job) not in there])


def first_tasks(wanted: dict[str, list[Job]]) -> list[Task]:
    """What depends on the host, to be measured before any process takes its time."""
    return tasks_of(wanted, lambda job: job in FIRST)


def most_tasks(wanted: dict[str, list[Job]], lines: list[dict]) -> list[Task]:
    """The largest batches first. Then torch.compile's and Reprise's by turns, as compiling takes long: networks of very
    many parameters, the one whose budgets are drawn, then the others, those with the most parameters first.
    channels_last comes after Reprise's usual ones."""
    sizes = {line["network"]: line.get("parameters", 0) for line in lines if key(line)[1] == PLAIN}

    def in_order(method: str, most: int) -> list[Task]:
        tasks = tasks_of(wanted, lambda job: job[0] == method and job not in FIRST, most)
        return sorted(tasks, key=lambda task: (sizes.get(task.name, 0) < MANY, task.name not in SWEPT.values(),
                                               -sizes.get(task.name, 0)))

    mine = chain(in_order("reprise", 6), in_order("channels-last", 6))
    by_turns = chain.from_iterable(zip_longest(in_order("compile", 1), mine))
    return [*in_order("max-batch", 1), *filter(None, by_turns)]


def tasks_of(wanted: dict[str, list[Job]], is_one: Callable[[Job], bool], most: int = 6) -> list[Task]:
    chosen = {name: [job for job in jobs if is_one(job)] for name, jobs in wanted.items()}
    return [Task(name, jobs[i:i + most]) for name, jobs in chosen.items() for i in range(0, len(jobs), most)]


def run(tasks: list[Task], options: Options, at_once: int) -> None:
    """Measures what has no line yet. A process that dies is started again for the rest; where it wrote nothing, its
    first job is to blame and gets a line that says so."""
    results, settings = Path(options.results), options.settings()
    waiting, crowd = list(tasks), Crowd(options.timeout)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        while waiting or crowd.running:
            while len(crowd.running) < at_once and (task := next_of(waiting, crowd.running.values(), options)):
                waiting.remove(task)
                task = task.missing(results, settings)
                if task.jobs:
                    crowd.add(start(task, options), task)
            for process, task in crowd.listen():
                left = after(task, process.wait(), results, settings)
                waiting[:0] = [left] if left.jobs else []
    finally:
        for process in crowd.running:
            os.killpg(process.pid, signal.SIGKILL)


class Crowd:
    """Processes that run at once, and what each is now."""

    def __init__(self, timeout: float):
        self.running: dict[subprocess.Popen, Task] = {}
        self._timeout = timeout  # seconds that one may be alone
        self._now: dict[subprocess.Popen, bytes] = {}
        self._asked: dict[subprocess.Popen, bytes] = {}  # what each waits to be, in the order they came
        self._said = selectors.DefaultSelector()

    def add(self, process: subprocess.Popen, task: Task) -> None:
        self.running[process], self._now[process] = task, HERE
        self._said.register(process.stdout, selectors.EVENT_READ, process)

    def listen(self) -> list[tuple[subprocess.Popen, Task]]:
        """Waits until processes ask to be something, and lets those be it that need not wait. Returns those that
        ended."""
        for event, _ in self._said.select() if self.running else []:
            self._asked[event.data] = os.read(event.data.stdout.fileno(), 1)
        gone = []
        while process := next((one for one, word in self._asked.items() if not self._has_to_wait(word)), None):
            word = self._asked.pop(process)
            if word in STOPPED_FOR:
                word = leave_alone(process, [other for other in self.running if other is not process
                                             and self._now[other] in STOPPED_FOR[word]], self._timeout)
            if word:
                self._now[process] = word
                answer(process)
            else:
                self._said.unregister(process.stdout)
                del self._now[process]
                gone.append((process, self.running.pop(process)))
        return gone

    def _has_to_wait(self, word: bytes) -> bool:
        """Who is to be sole, for those who plan; who is to plan, for those who wait to be sole."""
        return word == SOLE and PLANS in self._now.values() or word == PLANS and SOLE in self._asked.values()


def next_of(waiting: list[Task], running: Collection[Task], options: Options) -> Task | None:
    """The first that the device has memory for beside those that run. Of largest batches, which take the most, one runs at
    a time."""
    if not options.on_cuda:
        return waiting[0] if waiting else None
    one_runs = any(task.is_largest_batch for task in running)
    plain = {line["network"]: int(line["reserved_mib"]) << 20 for line in read(Path(options.results))
             if key(line)[1] == PLAIN and "reserved_mib" in line}
    left = torch.cuda.get_device_properties(options.device).total_memory
    left -= sum(bytes_of(task, plain, options.limit) for task in running)
    fitting = (task for task in waiting if not running or
               bytes_of(task, plain, options.limit) <= left and not (task.is_largest_batch and one_runs))
    return next(fitting, None)


def bytes_of(task: Task, plain: dict[str, int], limit: int) -> int:
    """About the most of the device's memory that it takes; `plain`: what eager does."""
    usual = 5 * plain[task.name] // 4 + (1 << 30) if task.name in plain else limit
    return MOST * limit if task.is_largest_batch else usual


def start(task: Task, options: Options) -> subprocess.Popen:
    print(f"{task.name}: {', '.join(' '.join(job).strip() for job in task.jobs)}", flush=True)
    told = json.dumps([task.name, task.jobs, asdict(options)])
    return subprocess.Popen([sys.executable, "-m", "benchmarks.gpu.measure", told], cwd=ROOT,
                            env={"TORCHINDUCTOR_COMPILE_THREADS": str(COMPILERS)} | os.environ,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def leave_alone(process: subprocess.Popen, others: list[subprocess.Popen], seconds: float) -> bytes:
    """The others stand still, with all that they have started, until the process says that it is something else, or
    dies, which it does after that many seconds. What it said comes back."""
    for other in others:
        os.killpg(other.pid, signal.SIGSTOP)
    if others:
        time.sleep(STOPPED)
    word = b""
    if answer(process):
        if not select.select([process.stdout], [], [], seconds)[0]:
            os.killpg(process.pid, signal.SIGKILL)
        word = os.read(process.stdout.fileno(), 1)
    for other in others:
        os.killpg(other.pid, signal.SIGCONT)
    return word


def answer(process: subprocess.Popen) -> bool:
    """False where it is gone."""
    try:
        return os.write(process.stdin.fileno(), GO) == 1
    except BrokenPipeError:
        return False


def after(task: Task, code: int, results: Path, settings: dict) -> Task:
    """What is left of it when its process has ended."""
    left = task.missing(results, settings)
    if left.jobs == task.jobs:
        method, budget = left.jobs[0]
        line = {"network": left.name, "method": method, "budget": budget, "settings": settings, "boot": boot(),
                "error": f"the process died with {code}"}
        append(results, line)
    return left
