# SPDX-License-Identifier: Apache-2.0
"""Asks the C++ core for plans, and keeps what it answered."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from . import _core
from .cache import cache

# Planning settles for this much above the proven bound: less than what timings scatter by.
GOOD_ENOUGH = 0.002


@dataclass
class Search:
    """How long to look for a plan."""

    seconds: float | None = 5.0
    iterations: int | None = None
    seed: int = 0
    threads: int = 1

    def briefly(self) -> "Search":
        """For plans of which several are made."""
        return self if self.seconds is None else replace(self, seconds=min(1.0, self.seconds))


def ask(graph: _core.Graph, budget: int | None, search: Search, start: list[int] | None = None) -> dict:
    """Asks the solver, or the cache. More budget never costs more: plans made for other budgets compete, and so does
    `start`, a plan for a graph with other workspaces."""
    text = json.dumps([graph.to_json(), search.seconds, search.iterations, search.seed])
    key = "plans 1 " + hashlib.sha256(text.encode()).hexdigest()
    known: dict[str, dict] = cache().get(key) or {}
    answer = known.get(str(budget))
    if answer is None:
        fits = start is not None and budget is not None and graph.replay(start)["peak_bytes"] <= budget
        answer = graph.solve(budget, seconds=search.seconds, iterations=search.iterations, gap=GOOD_ENOUGH,
                             threads=search.threads, seed=search.seed,
                             start=_best_known(known, budget).get("steps") or (start if fits else []))
        known = known | {str(budget): answer}
        cache().put(key, known)
        cache().save()
    if budget is None:
        return answer
    best = _best_known(known, budget)
    return answer if not best or (answer["steps"] is not None and answer["cost"] <= best["cost"]) else (
        answer | {name: best[name] for name in ("steps", "peak_bytes", "cost")} | {"status": "feasible"})


def _best_known(known: dict[str, dict], budget: int | None) -> dict:
    """The cheapest of the plans that fit; for the smallest peak, that of the smallest."""
    fit = [a for a in known.values() if a["steps"] is not None and (budget is None or a["peak_bytes"] <= budget)]
    if budget is None:
        return min(fit, key=lambda a: (a["peak_bytes"], a["cost"]), default={})
    return min(fit, key=lambda a: (a["cost"], a["peak_bytes"]), default={})
