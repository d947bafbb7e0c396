# SPDX-License-Identifier: Apache-2.0
"""Memory and time of OGC's 18 networks, GPT-2, BERT, ViT and a Llama: eager, checkpointed, torch.compile, Reprise.

    python -m benchmarks.gpu [--only resnet50 gpt2] [--methods eager,reprise | --sweep | --max-batch] [--again]

Appends a JSON line for each network, method and budget to build/gpu/results.jsonl, and writes results.md and, where
budgets were swept, results.svg beside it. What has a line of the same settings is not measured again, so that a run can
go on where one ended; but eager is on another machine, as times are told over eager's on the same one. Each network is
measured in processes of its own, several at once, but alone on the GPU while it is timed; where one dies, the line says
so and the next one begins. What depends on the host as well, as eager does, is timed before any other plans or compiles,
which takes the host's time.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from reprise import RepriseError

from .measure import ALONE, AWAY, BACK, DONE, GO, METHODS, SWEPT, Job, Options, boot, jobs_of
from .networks import networks_of
from .report import markdown, svg

ROOT = Path(__file__).resolve().parents[2]
STOPPED = 0.05  # seconds in which a process that is told to stop has
BEGIN, END = "<!-- tables of benchmarks.gpu -->", "<!-- end of tables -->"  # in a page


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    results = Path(args.results or ROOT / "build/gpu" / ("tiny.jsonl" if args.tiny else "results.jsonl")).resolve()
    results.parent.mkdir(parents=True, exist_ok=True)
    options = Options(str(results), args.device, args.tiny, args.steps, args.executor, args.plan_seconds, args.limit,
                      args.timeout)
    if not args.report:
        names, methods = args.only or networks_of(args.tiny), args.methods.split(",")
        wanted = {name: jobs_of(name, methods, args.tiny) for name in names}
        if args.again:
            forget(results, options, wanted, spare=[] if "eager" in methods else [("eager", "")])
        for now in sorted({phase(job) for jobs in wanted.values() for job in jobs}):
            tasks = [task for name, jobs in wanted.items()
                     for task in tasks_of(name, [job for job in jobs if phase(job) == now])]
            run(tasks, options, min(args.at_once, room_for(tasks, options)))
    write(results, args)
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--results", help="JSON lines; build/gpu/results.jsonl, or tiny.jsonl for --tiny")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="networks")
    parser.add_argument("--methods", default=",".join(METHODS), help="some of %(default)s")
    parser.add_argument("--max-batch", dest="methods", action="store_const", const="max-batch",
                        help="only the largest batches")
    parser.add_argument("--sweep", dest="methods", action="store_const", const="sweep",
                        help="only ResNet-50 at ten budgets")
    parser.add_argument("--again", action="store_true", help="measure what has a line already")
    parser.add_argument("--report", action="store_true", help="measure nothing: tables and plot of what there is")
    parser.add_argument("--write", help="a page whose tables are replaced; the plot goes beside it")
    parser.add_argument("--steps", type=positive, default=20, help="that are timed")
    parser.add_argument("--executor", choices=["native", "cuda_graph", "fx"], help="of Reprise")
    parser.add_argument("--plan-seconds", type=seconds, default=5.0, help="of Reprise, for one plan")
    parser.add_argument("--limit", type=positive, default=16 * 10**9, help="bytes for the largest batches")
    parser.add_argument("--timeout", type=positive, default=900,
                        help="seconds for one line, those among them in which others are timed")
    parser.add_argument("--at-once", type=positive, default=min(6, (os.cpu_count() or 1) // 2 or 1),
                        help="processes; what is timed is timed alone")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small networks, to try all of it on a CPU")
    args = parser.parse_args(argv)
    networks = networks_of(args.tiny)
    for what, given, known in (("method", args.methods.split(","), METHODS), ("network", args.only or [], networks)):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"unknown {what} '{unknown[0]}' (want some of {', '.join(known)})")
    if args.device.startswith("cuda") and not args.report and not torch.cuda.is_available():
        parser.error("there is no GPU (--device cpu --tiny tries all of it without one)")
    return args


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: want at least 1")
    return number


def seconds(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text}: want more than 0")
    return number


def read(results: Path) -> list[dict]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


def key(line: dict) -> tuple[str, Job]:
    return line["network"], (line["method"], line["budget"])


def forget(results: Path, options: Options, wanted: dict[str, list[Job]], spare: list[Job]) -> None:
    settings = options.settings()
    kept = [line for line in read(results)
            if key(line)[1] in spare or key(line)[1] not in wanted.get(line["network"], [])
            or line.get("settings") != settings]
    results.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


@dataclass
class Task:
    """Jobs of a network that one process does."""

    name: str
    jobs: list[Job]

    def missing(self, results: Path, settings: dict) -> "Task":
        there = {key(line) for line in read(results)
                 if line.get("settings") == settings and (line["method"] != "eager" or line["boot"] == boot())}
        return Task(self.name, [job for job in self.jobs if (self.name, job) not in there])


def tasks_of(name: str, jobs: list[Job], most: int = 6) -> list[Task]:
    return [Task(name, jobs[i:i + most]) for i in range(0, len(jobs), most)]


def phase(job: Job) -> int:
    """When it is measured: what depends on the host first, what takes the host's time last; what takes most of the
    device's memory apart."""
    method, budget = job
    if job in (("eager", ""), ("checkpoint", ""), ("channels-last", "eager")):
        return 0
    return {"reprise": 1, "channels-last": 1, "eager": 2, "max-batch": 4 if budget == "reprise" else 3,
            "compile": 5}[method]


def run(tasks: list[Task], options: Options, at_once: int) -> None:
    """Measures what has no line yet. A process that dies is started again for the rest; where it wrote nothing, its
    first job is to blame and gets a line that says so."""
    results, settings = Path(options.results), options.settings()
    waiting = deque(tasks)
    running: dict[subprocess.Popen, Task] = {}
    away: set[subprocess.Popen] = set()  # those that use no GPU now
    said = selectors.DefaultSelector()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                task = waiting.popleft().missing(results, settings)
                if task.jobs:
                    process = start(task, options)
                    running[process] = task
                    said.register(process.stdout, selectors.EVENT_READ, process)
            for event, _ in said.select() if running else []:
                process = event.data
                word = os.read(process.stdout.fileno(), 1)
                if word == ALONE:
                    leave_alone(process, [other for other in running if other is not process and other not in away],
                                options.timeout)
                elif word == AWAY:
                    away.add(process)
                elif word == BACK:
                    away.remove(process)
                    answer(process)
                else:
                    assert not word, word  # it has ended
                    said.unregister(process.stdout)
                    away.discard(process)
                    waiting.appendleft(after(running.pop(process), process.wait(), results, settings))
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)


def start(task: Task, options: Options) -> subprocess.Popen:
    print(f"{task.name}: {', '.join(' '.join(job).strip() for job in task.jobs)}", flush=True)
    told = json.dumps([task.name, task.jobs, asdict(options)])
    return subprocess.Popen([sys.executable, "-m", "benchmarks.gpu.measure", told], cwd=ROOT,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def leave_alone(process: subprocess.Popen, others: list[subprocess.Popen], seconds: float) -> None:
    """The others stand still, with all that they have started, until the process says that it is done, or dies. It does
    so after that many seconds."""
    for other in others:
        os.killpg(other.pid, signal.SIGSTOP)
    if others:
        time.sleep(STOPPED)
    if answer(process):
        if not select.select([process.stdout], [], [], seconds)[0]:
            os.killpg(process.pid, signal.SIGKILL)
        word = os.read(process.stdout.fileno(), 1)
        assert word in (DONE, b""), word
    for other in others:
        os.killpg(other.pid, signal.SIGCONT)


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
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return left


def room_for(tasks: list[Task], options: Options) -> int:
    """How many processes the device has memory for. Where eager's largest batch is looked for, one is doubled until it
    does not fit: that may take twice the limit. As much is left for what else is taken."""
    takes = {("max-batch", "eager"): 4, ("max-batch", "reprise"): 2}
    most = max((takes.get(job, 0) for task in tasks for job in task.jobs), default=0)
    if not most:
        return len(tasks) or 1
    if not options.on_cuda:
        return 1
    return max(1, torch.cuda.get_device_properties(options.device).total_memory // (most * options.limit))


def write(results: Path, args: argparse.Namespace) -> None:
    lines = [line for line in read(results) if "settings" in line]
    if not lines:
        sys.exit(f"{results}: nothing was measured yet")
    lines = [line for line in lines if line["settings"] == lines[-1]["settings"]]
    tables = markdown(lines, networks_of(args.tiny))
    results.with_suffix(".md").write_text(tables, encoding="utf-8")
    print(tables)
    if args.write:
        replace_tables(Path(args.write), tables)
    try:
        drawn = svg(lines, SWEPT[args.tiny])
    except RepriseError as error:
        print(f"no plot: {error}")
        return
    if drawn:
        for place in [results, *([Path(args.write)] if args.write else [])]:
            place.with_suffix(".svg").write_text(drawn, encoding="utf-8")


def replace_tables(page: Path, tables: str) -> None:
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{tables}{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
