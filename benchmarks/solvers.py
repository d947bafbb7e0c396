#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds and memory of every solver on every graph, each run a process of its own.

usage: benchmarks/solvers.py PROGRAM [FOLDER OR FILE]…

Without graphs: those in ../shared/data, where that folder is there, else the examples. Seconds are of
CPU time, for loading, solving and checking together; memory is the largest resident set, at least
the 14 MiB of this script.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT.parent / "shared" / "data"
TIME_LIMIT = "10s"
BUDGETS = ["50%", "min"]


def graphs_in(places):
    for place in places:
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (file for file in files if file.is_file() and file.parent.name != "golden")


def measure(*command):
    """Exit code, what it printed, seconds of CPU time, bytes of memory."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    return process.returncode, printed, seconds, usage.ru_maxrss * 1024


def in_words(code, printed):
    if code not in (0, 3, 4):
        return "refused"
    answer = json.loads(printed)
    if answer["overhead"] is None:
        return answer["status"]
    return f"{answer['overhead']:+.2%}"


def main(program, *places):
    if not places:
        places = [PUBLISHED if PUBLISHED.is_dir() else ROOT / "examples" / "transformer.json"]
    listed = subprocess.run([program, "solvers", "--json"], stdout=subprocess.PIPE, check=True)
    solvers = [solver["name"] for solver in json.loads(listed.stdout)]
    print(f"time limit {TIME_LIMIT}")
    print(f"{'graph':<32} {'solver':<24} {'budget':>6} {'CPU':>9} {'memory':>9}  overhead")
    for graph in graphs_in(Path(place) for place in places):
        name = "/".join(graph.parts[-2:])
        for solver, budget in itertools.product(solvers, BUDGETS):
            code, printed, seconds, memory = measure(
                program, "plan", str(graph), "--budget", budget, "--solver", solver,
                "--time-limit", TIME_LIMIT, "--json",
            )  # fmt: skip
            print(
                f"{name:<32} {solver:<24} {budget:>6} {seconds:>7.3f} s {memory / 2**20:>5.0f} MiB"
                f"  {in_words(code, printed)}",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
