# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the program `reprise`: the verb `explain`, and its line in the help."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from . import _core
from .errors import RepriseError
from .explain import explain
from .page import page, write_page

PROGRAM = Path(__file__).parent / "bin" / "reprise"

_EXPLAIN = "Show what a plan keeps and recomputes, as words or a page"
_BAD_INPUT, _RULE_BROKEN = 2, 5
_COUNTS = ("resident_bytes", "released_bytes", "predicted_bytes", "steps")
_COUNTS_OR_NULL = ("budget_bytes", "lower_bound", "measured_bytes", "most_bytes")


def main() -> int:
    words = sys.argv[1:]
    return _explain(words[1:]) if words[:1] == ["explain"] else _help()


def _help() -> int:
    shown = subprocess.run([PROGRAM, "--help"], check=True, capture_output=True, text=True).stdout
    verbs, blank, rest = shown.partition("\n\nreprise VERB --help")
    print(f"{verbs}\n  {'explain':28}{_EXPLAIN}{blank}{rest}", end="")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(_BAD_INPUT)


def _parse(words: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="reprise explain", description=_EXPLAIN, allow_abbrev=False)
    parser.add_argument("graph", metavar="GRAPH", help="a graph file (reprise-graph), or - for standard input")
    parser.add_argument("plan", metavar="PLAN", help="a plan file (reprise-plan), or -")
    parser.add_argument("-o", "--output", metavar="FILE", help="write an HTML page; - is standard output")
    parser.add_argument("--measured", metavar="FILE", help="what a step took: to_json() of a compiled module's report")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(words)
    if args.json and args.output == "-":
        parser.error("--json needs another --output: standard output can't take both")
    if args.graph == args.plan == "-":
        parser.error("standard input can't be both graph and plan")
    return args


def _explain(words: list[str]) -> int:
    args = _parse(words)
    try:
        graph = _core.Graph(_read(args.graph), _shown(args.graph))
        steps = graph.read_plan(_read(args.plan), _shown(args.plan))
        if broken := graph.check(steps):
            print(f"{_shown(args.plan)}: {broken}", file=sys.stderr)
            return _RULE_BROKEN
        report = explain(graph, steps, **_read_measured(args.measured, steps))
        if args.output == "-":
            print(page(report, graph, steps), end="")
        elif args.output:
            write_page(args.output, page(report, graph, steps))
    except (RepriseError, _core.InputError) as error:
        print(f"reprise: {error}", file=sys.stderr)
        return _BAD_INPUT
    words = sys.stderr if args.output == "-" else sys.stdout
    print(report.to_json() + "\n" if args.json else report, end="", file=words)
    return 0


def _shown(path: str) -> str:
    return "<stdin>" if path == "-" else path


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RepriseError(f"{path}: can't read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RepriseError(f"{_shown(path)}: not UTF-8") from None


def _read_measured(path: str | None, steps: list[int]) -> dict:
    """The fields of a report that only a step that ran can tell."""
    if path is None:
        return {}
    try:
        given = json.loads(_read(path))
        taken = {name: int(given[name]) for name in _COUNTS}
        taken |= {name: None if given[name] is None else int(given[name]) for name in _COUNTS_OR_NULL}
        levels = given["timeline"]
        timeline = None if levels is None else [None if level is None else int(level) for level in levels]
    except (ValueError, TypeError, KeyError):
        raise RepriseError(f"{_shown(path)}: not a report of a compiled module (report.to_json())") from None
    computes = sum(step >= 0 for step in steps)
    if timeline is not None and len(timeline) != computes:
        raise RepriseError(f"{_shown(path)}: of another plan: {len(timeline)} computes, not {computes}")
    return {**taken, "status": given.get("status"), "timeline": timeline}
