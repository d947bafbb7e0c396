# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML page that needs nothing else: headline numbers, the memory timeline, tables of values."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from ._core import Graph
from .errors import RepriseError
from .explain import Curve, Entry, Report, curve, times_words
from .words import BYTE_UNITS, COST_UNITS, bytes_words, count, unit_for

_COLUMNS = 840  # of the chart, a pixel each
_COLOURS = {"plain": "#6e7781", "plan": "#1f6feb", "measured": "#1a7f37", "budget": "#bf8700", "resident": "#afb8c1"}
_INK, _QUIET, _GRID, _AXIS = "#24292f", "#57606a", "#eaeef2", "#8c959f"
_STYLE = {
    "background": "white", "font": "Helvetica, Arial, sans-serif", "view": {"stroke": None},
    "axis": {"gridColor": _GRID, "domainColor": _AXIS, "tickColor": _AXIS, "labelColor": _QUIET, "titleColor": _QUIET,
             "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
    "axisY": {"domain": False, "titleAngle": 0, "titleAlign": "right", "titleX": -8, "titleY": -8},
    "legend": {"orient": "top", "title": None, "offset": 18, "symbolType": "stroke", "symbolStrokeWidth": 3,
               "symbolOpacity": 1, "labelFontSize": 12, "labelColor": _INK},
}

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: #24292f; background: #ffffff;
  max-width: 960px; margin: 2.5rem auto; padding: 0 1.5rem; }}
h1 {{ font-size: 1.6rem; margin: 0; }}
h2 {{ font-size: 1.1rem; margin: 2.2rem 0 0.5rem; }}
h2 span, .short, .facts td:last-child {{ color: #57606a; font-weight: normal; }}
.short {{ margin: 0.1rem 0 1.2rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
.facts td {{ padding: 0.1rem 1.2rem 0.1rem 0; }}
.facts td:nth-child(2) {{ font-weight: 600; }}
.values {{ width: 100%; }}
.values th {{ text-align: left; font-weight: 600; border-bottom: 2px solid #d0d7de; }}
.values td, .values th {{ padding: 0.25rem 1rem 0.25rem 0; }}
.values td {{ border-bottom: 1px solid #eaeef2; overflow-wrap: anywhere; }}
table .number {{ text-align: right; white-space: nowrap; }}
figure {{ margin: 1.5rem 0 0; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="short">{short}</p>
<table class="facts">
{facts}
</table>
<figure>
{chart}
</figure>
{tables}
</body>
</html>
"""


def write_page(path: str | os.PathLike, text: str) -> None:
    """Beside its name, then renamed: an interrupted run leaves the old file or the new one."""
    path = Path(path)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RepriseError(f"{path}: can't write: {error.strerror}") from None


def page(report: Report, graph: Graph, steps: list[int], plain: Graph | None = None) -> str:
    """`plain`, here and below: the graph as it is run without a plan, where that is another."""
    facts = "\n".join(
        f'<tr><td>{escape(label)}</td><td class="number">{escape(amount)}</td><td>{escape(remark)}</td></tr>'
        for label, amount, remark in report.facts())
    return _PAGE.format(title=escape(report.name), short=escape(report.in_short()), facts=facts,
                        chart=draw(timeline(report, graph, steps, plain)),
                        tables="\n".join(_table(title, entries) for title, entries in report.tables()))


def _table(title: str, entries: list[Entry]) -> str:
    total = bytes_words(sum(entry.bytes for entry in entries))
    words = f"{count(len(entries), 'value')}, {total}" if entries else "none"
    heading = f"<h2>{escape(title.capitalize())} <span>{words}</span></h2>"
    if not entries:
        return heading
    rows = "\n".join(
        f'<tr><td class="number">{bytes_words(entry.bytes)}</td>'
        f'<td title="{escape(entry.value)}">{escape(entry.module)}</td>'
        f"<td>{escape(entry.op)}</td><td>{escape(entry.line)}</td>"
        f'<td class="number">{times_words(entry.times)}</td></tr>' for entry in entries)
    return (f'{heading}\n<table class="values">\n<thead><tr><th class="number">bytes</th><th>module</th><th>op</th>'
            f'<th>line</th><th class="number">computed</th></tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>')


def draw(chart: dict) -> str:
    """The chart as SVG. Nothing is fetched."""
    try:
        import vl_convert
    except ImportError:
        raise RepriseError("a page needs vl-convert to draw its chart: pip install vl-convert-python") from None
    return vl_convert.vegalite_to_svg(chart, allowed_base_urls=[])


def timeline(report: Report, graph: Graph, steps: list[int], plain: Graph | None = None) -> dict:
    """Vega-Lite: bytes in use over the work done, without a plan, with it, and as measured."""
    over = report.resident_bytes, report.released_bytes
    plain = plain or graph
    plan, unplanned = curve(graph, steps, *over), curve(plain, plain.base_run, *over)
    longest = max(plan.cost, unplanned.cost, 1)
    most = max([*plan.bytes, *unplanned.bytes, *(level for level in report.timeline or [] if level is not None)])
    budget = report.budget_bytes
    if budget is not None and budget > 1.25 * most:  # would press all else to the ground
        budget = None
    top = 1.06 * max(most, budget or 1)
    size, unit = unit_for(top, 1024, BYTE_UNITS)
    cost_size, cost_unit = unit_for(longest, 1000, COST_UNITS.get(report.cost_unit, ("",)))
    work = "time" if report.cost_unit == "ns" else "work done" if cost_unit else "cost"
    x = {"field": "x", "type": "quantitative", "title": f"{work}, {cost_unit}" if cost_unit else work,
         "scale": {"domain": [0, longest / cost_size], "nice": False}, "axis": {"grid": False, "tickCount": 8}}
    y = {"field": "y", "type": "quantitative", "title": unit, "scale": {"domain": [0, top / size], "nice": False},
         "axis": {"tickCount": 6}}
    absent = {"measured"} if report.timeline is None else set()
    absent |= {"budget"} if budget is None else set()
    colours = {name: colour for name, colour in _COLOURS.items() if name not in absent}

    def layer(name: str, rows: list[dict], mark: dict, **more) -> dict:
        colour = {"datum": name, "type": "nominal", "scale": {"domain": [*colours], "range": [*colours.values()]}}
        return {"data": {"values": rows}, "mark": mark, "encoding": {"y": y, "color": colour, **more}}

    def outline(run: Curve, levels: list[int | None]) -> list[dict]:
        return [{"x": cost / cost_size, "y": level / size} for cost, level in _outline(run, levels, longest)]

    base = report.resident_bytes / size
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.3}
    area = {"type": "area", "interpolate": "step-after", "fillOpacity": 0.25, "line": {"strokeWidth": 1.2}}
    layers = [layer("resident", [{"y": base}], {"type": "rect", "opacity": 0.45}, y2={"datum": 0}),
              layer("plan", outline(plan, plan.bytes), area, x=x, y2={"datum": base}),
              layer("plain", outline(unplanned, unplanned.bytes), {**line, "strokeDash": [4, 3]}, x=x)]
    if report.timeline is not None:
        layers.append(layer("measured", outline(plan, report.timeline), line, x=x))
    if budget is not None:
        layers.append(layer("budget", [{"y": budget / size}], {"type": "rule", "strokeWidth": 1.6}))
    return {"width": _COLUMNS, "height": 340, "layer": layers + _phases(plan, cost_size, x), "config": _STYLE}


def _phases(plan: Curve, cost_size: int, x: dict) -> list[dict]:
    """Where the plan's forward ends, and the words to both sides."""
    forward, end = plan.forward_cost / cost_size, plan.cost / cost_size
    words = [{"x": forward / 2, "word": "forward"}, {"x": (forward + end) / 2, "word": "backward"}]
    return [{"data": {"values": [{"x": forward}]}, "mark": {"type": "rule", "color": _INK, "strokeDash": [1, 3]},
             "encoding": {"x": x}},
            {"data": {"values": words}, "mark": {"type": "text", "color": _QUIET, "fontSize": 12, "y": -8},
             "encoding": {"x": x, "text": {"field": "word"}}}]


def _outline(run: Curve, levels: list[int | None], longest: int) -> list[tuple[float, int]]:
    """The most that is in use in each column of the chart, where it changes; and the end."""
    columns: dict[int, int] = {}
    for begin, end, level in zip(run.begins, [*run.begins[1:], run.cost], levels):
        if level is None:
            continue
        first = min(begin * _COLUMNS // longest, _COLUMNS - 1)
        last = max(first, -(-end * _COLUMNS // longest) - 1)
        for column in range(first, last + 1):
            columns[column] = max(columns.get(column, 0), level)
    found: list[tuple[float, int]] = []
    for column, level in sorted(columns.items()):
        if not found or found[-1][1] != level:
            found.append((column * longest / _COLUMNS, level))
    return found + [(run.cost, found[-1][1])] if found else []
