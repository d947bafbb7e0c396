#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what a plan and the plain run hold over the work they do, as an SVG file.

usage: draw_timeline.py GRAPH BUDGET OUTPUT.svg

Runs the program `reprise` (REPRISE_PROGRAM, else build/bin/reprise) and needs nothing but Python.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

PROGRAM = os.environ.get("REPRISE_PROGRAM", str(Path(__file__).parents[1] / "build/bin/reprise"))

# The page, in pixels, and where in it the chart is.
WIDTH, HEIGHT = 880, 420
LEFT, RIGHT, TOP, BOTTOM = 66, 850, 62, 350

INK, QUIET, GRID = "#24292f", "#6e7781", "#e4e7eb"
PLAN, PLAN_FILL, BUDGET, PEAK = "#1f6feb", "#b6d4fb", "#bf8700", "#cf222e"

WORK_UNITS = {"ns": ["ns", "us", "ms", "s"], "flops": ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]}


def reprise(*arguments):
    run = subprocess.run([PROGRAM, *arguments], check=False, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr.strip())
    return run.stdout


@dataclass
class Run:
    """A plan replayed: what is in use while each compute runs, and from when to when it runs."""

    levels: list  # (begin, end, bytes): begin and end in units of cost
    starts: dict  # an op's name: the cost done when it first runs
    budget_bytes: int | None
    peak_bytes: int
    peak_at: float  # the middle of the compute that reaches the peak
    cost: int
    overhead: float


def replay(graph_file, costs, solver, budget, folder):
    plan_file = str(Path(folder) / f"{solver}.json")
    words = ("plan", graph_file, "--solver", solver, "--budget", budget, "--iterations", "20000")
    answer = json.loads(reprise(*words, "-o", plan_file, "--json"))
    steps = json.loads(Path(plan_file).read_text(encoding="utf-8"))["steps"]
    facts = json.loads(reprise("simulate", graph_file, plan_file, "--json"))
    levels, starts, done, peak_at = [], {}, 0, 0
    for number, ((kind, name), in_use) in enumerate(zip(steps, facts["bytes_in_use"])):
        if kind != "compute":
            continue
        levels.append((done, done + costs[name], in_use))
        starts.setdefault(name, done)
        if number == facts["peak_step"]:
            peak_at = done + costs[name] / 2
        done += costs[name]
    return Run(
        levels, starts, answer["budget_bytes"], facts["peak_bytes"], peak_at, facts["cost"], facts["overhead"] or 0
    )


def scale_of(amount, factor, units):
    """The unit that leaves `amount` a number a person reads, and its size."""
    size, name = 1, units[0]
    for unit in units[1:]:
        if amount < size * factor:
            break
        size, name = size * factor, unit
    return size, name


def round_step(largest, about):
    """A step of 1, 2 or 5 times a power of ten that gives some `about` ticks up to `largest`."""
    step = 10.0 ** len(str(int(largest))) * 10
    while True:
        for part in (0.5, 0.4, 0.5):
            if largest / (step * part) > about:
                return step
            step *= part


def three_digits(number):
    return f"{number:.{0 if number >= 99.95 else 1 if number >= 9.995 else 2}f}"


def bytes_words(amount):
    size, unit = scale_of(amount, 1024, ["B", "KiB", "MiB", "GiB", "TiB"])
    return f"{three_digits(amount / size) if size > 1 else amount} {unit}"


class Chart:
    def __init__(self, largest_cost, largest_bytes, cost_unit):
        self.cost_size, self.cost_unit = scale_of(largest_cost, 1000, WORK_UNITS.get(cost_unit, [""]))
        self.byte_size, self.byte_unit = scale_of(largest_bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"])
        self.right = largest_cost / self.cost_size or 1
        self.top = largest_bytes * 1.08 / self.byte_size or 1
        self.parts = []

    def x(self, cost):
        return LEFT + (RIGHT - LEFT) * cost / self.cost_size / self.right

    def y(self, amount):
        return BOTTOM - (BOTTOM - TOP) * amount / self.byte_size / self.top

    def add(self, part):
        self.parts.append(part)

    def line(self, x1, y1, x2, y2, style):
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>')

    def text(self, x, y, words, colour=INK, anchor="start", more=""):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" {more}>{escape(words)}</text>')

    def axes(self):
        step = round_step(self.top, 6)
        for i in range(int(self.top / step) + 1):
            y = self.y(i * step * self.byte_size)
            self.line(LEFT, y, RIGHT, y, f'stroke="{GRID if i else INK}"')
            self.text(LEFT - 8, y + 4, f"{i * step:g}", QUIET, "end")
        self.text(LEFT - 8, TOP - 10, self.byte_unit, QUIET, "end")
        step = round_step(self.right, 7)
        for i in range(int(self.right / step) + 1):
            x = self.x(i * step * self.cost_size)
            self.line(x, BOTTOM, x, BOTTOM + 5, f'stroke="{INK}"')
            self.text(x, BOTTOM + 19, f"{i * step:g}", QUIET, "middle")
        words = f"work done, {self.cost_unit}" if self.cost_unit else "work done"
        self.text(RIGHT, BOTTOM + 38, words, QUIET, "end")

    def outline(self, run):
        """Points of the run's outline; of those in one tenth of a pixel, the first, the extremes and the last."""
        columns = {}
        for begin, end, amount in run.levels:
            for at in (begin, end):
                columns.setdefault(round(self.x(at), 1), []).append(round(self.y(amount), 1))
        points = []
        for x, ys in columns.items():
            for y in (ys[0], max(ys), min(ys), ys[-1]):
                if points[-1:] != [f"{x:g},{y:g}"]:
                    points.append(f"{x:g},{y:g}")
        return points

    def draw_plan(self, run):
        points = self.outline(run)
        corners = [f"{self.x(0):.1f},{BOTTOM}", *points, f"{self.x(run.cost):.1f},{BOTTOM}"]
        self.add(f'<polygon points="{" ".join(corners)}" fill="{PLAN_FILL}"/>')
        self.add(f'<polyline points="{" ".join(points)}" fill="none" stroke="{PLAN}" stroke-width="1.2"/>')

    def draw_plain(self, run):
        self.add(
            f'<polyline points="{" ".join(self.outline(run))}" fill="none" stroke="{INK}" '
            'stroke-width="1.4" stroke-dasharray="1.5 3"/>'
        )

    def draw_phases(self, phases):
        """Names of the phases under the axis, each where the plan comes to it."""
        for at, name in phases:
            x = self.x(at)
            self.line(x, BOTTOM + 24, x, BOTTOM + 42, f'stroke="{QUIET}"')
            self.text(x + 5, BOTTOM + 38, name, QUIET)

    def draw_budget(self, amount):
        y = self.y(amount)
        self.line(LEFT, y, RIGHT, y, f'stroke="{BUDGET}" stroke-width="1.6"')
        self.text(RIGHT, y - 7, f"budget {bytes_words(amount)}", BUDGET, "end")

    def draw_peak(self, run, words, colour):
        x, y = self.x(run.peak_at), self.y(run.peak_bytes)
        self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
        self.text(x + 8, y - 9, words, colour)

    def svg(self, title):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
            ' font-family="Helvetica, Arial, sans-serif" font-size="13">\n'
            f'<title>{escape(title)}</title>\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def phases_of(graph, run):
    """(cost at which the run comes to it, name) for each phase; the loss has no width of its own."""
    first = {}
    for op in graph["ops"]:
        first.setdefault(op.get("phase"), op["name"])
    return [(run.starts[name], phase) for phase, name in first.items() if phase in ("forward", "backward")]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    graph_file, budget, output = sys.argv[1:]
    graph = json.loads(reprise("convert", graph_file))
    costs = {op["name"]: op["cost"] for op in graph["ops"]}
    with tempfile.TemporaryDirectory() as folder:
        plan = replay(graph_file, costs, "auto", budget, folder)
        plain = replay(graph_file, costs, "store-all", "100%", folder)

    chart = Chart(max(plan.cost, plain.cost), max(plan.peak_bytes, plain.peak_bytes), graph["cost_unit"])
    chart.axes()
    chart.draw_plan(plan)
    chart.draw_plain(plain)
    chart.draw_phases(phases_of(graph, plan))
    if plan.budget_bytes is not None:
        chart.draw_budget(plan.budget_bytes)
    if plain.peak_bytes != plan.peak_bytes:
        chart.draw_peak(plain, f"plain run: peak {bytes_words(plain.peak_bytes)}", INK)
    chart.draw_peak(plan, f"plan: peak {bytes_words(plan.peak_bytes)}, {plan.overhead * 100:+.1f} % work", PEAK)
    title = f"{graph['name']}: bytes in use over one training step"
    chart.text(LEFT, 26, title, INK, "start", 'font-size="15" font-weight="bold"')
    Path(output).write_text(chart.svg(title), encoding="utf-8")


if __name__ == "__main__":
    main()
