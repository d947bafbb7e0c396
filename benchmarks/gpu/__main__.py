# SPDX-License-Identifier: Apache-2.0
"""Memory and time of OGC's 18 networks, GPT-2, BERT, ViT and a Llama: eager, checkpointed, torch.compile, Reprise.

    python -m benchmarks.gpu [--only resnet50 gpt2] [--methods eager,reprise | --sweep | --max-batch] [--again]

Appends a JSON line for each network, method and budget to build/gpu/results.jsonl, and writes results.md beside it, or
the page that --write names; where budgets were swept, also a plot beside that. What has a line of the
same settings is not measured again, so that a run can go on where one ended; only eager is measured anew on another
machine, as times are told over eager's on the same one. Each network is measured in processes of its own, several at
once, but alone on the GPU while it is timed, and alone on the machine where its time depends on the host; where one
dies, the line says so and the next one begins. Eager is timed before any other plans or compiles.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch

from reprise import RepriseError

from .jobs import METHODS, PLAIN, SWEPT, Options, jobs_of
from .networks import networks_of
from .processes import ROOT, first_tasks, most_tasks, run
from .report import markdown, svg
from .results import end_the_last_line, forget, read


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    results = Path(args.results or ROOT / "build/gpu" / ("tiny.jsonl" if args.tiny else "results.jsonl")).resolve()
    results.parent.mkdir(parents=True, exist_ok=True)
    options = Options(str(results), args.device, args.tiny, args.steps, args.executor, args.plan_seconds, args.limit,
                      args.timeout)
    if not args.report:
        names, methods = args.only or networks_of(args.tiny), args.methods.split(",")
        wanted = {name: jobs_of(name, methods, args.tiny) for name in names}
        end_the_last_line(results)
        if args.again:
            forget(results, options, wanted, spare=[] if "eager" in methods else [PLAIN])
        run(first_tasks(wanted), options, args.at_once)
        run(most_tasks(wanted, read(results)), options, args.at_once)
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
    parser.add_argument("--write", help="the page with all tables; the plot goes beside it")
    parser.add_argument("--steps", type=positive, default=10, help="that are timed, in each of several rounds")
    parser.add_argument("--executor", choices=["native", "cuda_graph", "fx"], help="of Reprise")
    parser.add_argument("--plan-seconds", type=seconds, default=5.0, help="of Reprise, for one plan")
    parser.add_argument("--limit", type=positive, help="bytes for the largest batches; 16 GB, or 8 MB for --tiny")
    parser.add_argument("--timeout", type=positive, default=900,
                        help="seconds for one line, those among them in which others are timed")
    parser.add_argument("--at-once", type=positive, default=min(6, (os.cpu_count() or 1) // 2 or 1),
                        help="processes; what is timed is timed alone")
    parser.add_argument("--device", type=device, default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small networks, to try all of it on a CPU")
    args = parser.parse_args(argv)
    args.limit = args.limit or (8 * 10**6 if args.tiny else 16 * 10**9)
    networks = networks_of(args.tiny)
    for what, given, known in (("method", args.methods.split(","), METHODS), ("network", args.only or [], networks)):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"unknown {what} '{unknown[0]}' (want some of {', '.join(known)})")
    if args.device.startswith("cuda") and not args.report and not torch.cuda.is_available():
        parser.error("there is no GPU (--device cpu --tiny tries all of it without one)")
    return args


def device(text: str) -> str:
    if text.partition(":")[0] not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{text}: want cpu or cuda")
    return text


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


def is_like(settings: dict, others: dict) -> bool:
    """Tell lines of both the same thing, if not as precisely?"""
    return all(settings.get(name) == others.get(name) for name in ("device", "torch", "tiny", "limit"))


def write(results: Path, args: argparse.Namespace) -> None:
    lines = [line for line in read(results) if "settings" in line]
    if not lines:
        sys.exit(f"{results}: nothing was measured yet")
    lines = [line for line in lines if is_like(line["settings"], lines[-1]["settings"])]
    page = Path(args.write) if args.write else results.with_suffix(".md")
    try:
        drawn = svg(lines, SWEPT[args.tiny])
    except RepriseError as error:
        print(f"no plot: {error}")
        drawn = None
    plot = page.with_suffix(".svg")
    if drawn:
        plot.write_text(drawn, encoding="utf-8")
    text = markdown(lines, networks_of(args.tiny), plot.name if drawn else None)
    print(text)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
