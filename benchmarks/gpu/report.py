# SPDX-License-Identifier: Apache-2.0
"""JSON lines of measurements as Markdown tables, and as a plot of the peak against the budget."""

from __future__ import annotations

from reprise.page import draw

from .jobs import PLAIN, Job
from .networks import Network
from .results import key

COLUMNS = {("checkpoint", ""): "checkpoint", ("compile", "1.0"): "torch.compile 1.0",
           ("compile", "0.5"): "torch.compile 0.5", ("reprise", "100%"): "Reprise 100 %",
           ("reprise", "ogc"): "Reprise at OGC's", ("reprise", "50%"): "Reprise 50 %", ("reprise", "min"): "Reprise min"}
PROTOCOL = """\
- **Step**: forward, the sum of the outputs (of language models: the loss) and backward; no optimizer. Inputs are random,
  new in each step, and need no gradient (OGC's need one, which its MiB count). Gradients of weights are there from the
  start and are zeroed in place by each step.
- **MiB**: OGC's intermediate memory, the peak of a step less what is allocated before or after it, whichever is more (of
  Reprise: before it is compiled); the highest peak of steps 3 to 8, the input included, weights and their gradients not.
- **Times** are by CUDA events, nothing waiting for the device between steps, the least of several rounds' medians; in
  percent over eager's on the same machine, which is measured first.
- **OGC**: what its own plans took on an H200 with torch 2.11, over eager as measured then. **Checkpoint**:
  `torch.utils.checkpoint` around each block. **torch.compile**: at its `activation_memory_budget`.
- **Predicted**: before the plan was recorded. **First steps**: the peak of the first two, which profile, run as they are
  and record; the first one's seconds are also those in which others were timed.
- **Largest batches**: by what is allocated, as budgets are; up to twice the limit may be reserved.
- **Planned** times, and those that no plan is below (**proven**), are over the plain step's as its operations add up."""
COLOURS = {"Reprise": "#1f6feb", "torch.compile": "#cf222e", "eager": "#6e7781"}


def markdown(lines: list[dict], networks: dict[str, Network], plot: str | None = None) -> str:
    """A page of all tables that there are lines for, with a plot that is drawn already; below them why figures are
    missing."""
    order = {name: i for i, name in enumerate(networks)}
    lines = sorted((line for line in lines if line["network"] in order), key=lambda line: order[line["network"]])
    eager = {(line["network"], line.get("boot")): line["ms"] for line in lines if key(line)[1] == PLAIN and "ms" in line}
    found = {key(line): _over_eager(line, eager) for line in lines}

    def measured(job: Job) -> list[str]:
        return [name for name in networks if (name, job) in found]

    tables = [_at_ogcs(found, measured(("reprise", "ogc")), networks),
              _networks(found, measured(PLAIN), networks),
              _channels_last(found, measured(("channels-last", "ogc")), networks),
              _plans([line for line in found.values() if "predicted_mib" in line]),
              _batches(found, measured(("max-batch", "eager")))]
    machine = sorted({f"{line['settings']['device']}, torch {line['settings']['torch']}" for line in lines})
    missing = [f"- {line['network']}, {line['method']} {line['budget']}".rstrip() + f": {line['error']}"
               for line in found.values() if "error" in line]
    shown = "" if plot is None else f"![Memory at ten budgets: Reprise's falls with them]({plot})"
    parts = ["# Measured on a GPU", "; ".join(machine), PROTOCOL, *tables[:2], shown, *tables[2:],
             "\n".join(["Missing:", "", *missing]) if missing else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def _over_eager(line: dict, eager: dict[tuple[str, str | None], float]) -> dict:
    """Where both were measured on one machine."""
    ms = eager.get((line["network"], line.get("boot")))
    return line | {"over": line["ms"] / ms - 1} if ms is not None and "ms" in line else line


def _table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def _at_ogcs(found: dict, names: list[str], networks: dict[str, Network]) -> str:
    rows = []
    for name in names:
        mine, least = found[name, ("reprise", "ogc")], found.get((name, ("reprise", "min")), {})
        rows.append([name, _of_ogc(networks[name]), f"{_figure(mine, 'mib')}, {_figure(mine, 'ms', 1)}",
                     _figure(found.get((name, PLAIN), {}), "ms", 1), f"{mine['over']:+.1%}" if "over" in mine else "–",
                     _beside(least)])
    return _table(["network", "OGC: MiB, over eager", "Reprise there: MiB, ms", "eager ms", "over eager",
                   "`min`: MiB, over eager"], rows)


def _of_ogc(network: Network) -> str:
    ogc = network.ogc
    return f"{ogc.mib:.0f}, {ogc.ms / ogc.eager_ms - 1:+.0%}" if ogc else "–"


def _networks(found: dict, names: list[str], networks: dict[str, Network]) -> str:
    rows = []
    for name in names:
        eager = found[name, PLAIN]
        rows.append([f"{name}, {networks[name].batch} × {networks[name].shape}", _figure(eager, "mib"),
                     _figure(eager, "ms", 1), _of_ogc(networks[name]),
                     *(_beside(found.get((name, job), {})) for job in COLUMNS)])
    return _table(["network", "eager MiB", "eager ms", "OGC", *COLUMNS.values()], rows)


def _channels_last(found: dict, names: list[str], networks: dict[str, Network]) -> str:
    rows = []
    for name in names:
        eager, mine = (found.get((name, ("channels-last", budget)), {}) for budget in ("eager", "ogc"))
        both = "ms" in eager and "ms" in mine
        rows.append([name, f"{networks[name].ogc.mib:.0f}", _beside(eager), _beside(mine),
                     f"{mine['ms'] / eager['ms'] - 1:+.0%}" if both else "–"])
    return _table(["channels_last, time over plain eager's", "OGC MiB", "eager", "Reprise at OGC's",
                   "over eager in channels_last"], rows)


def _plans(lines: list[dict]) -> str:
    """Each of Reprise's plans: device bytes as budgeted, predicted and measured, those of CUDA graphs among what the
    device holds for them, and times."""
    def budget(line: dict) -> str:
        return f"{line['budget']}, channels_last" if line["method"] == "channels-last" else line["budget"]

    rows = [[line["network"], budget(line),
             _figure(line, "budget_mib"), _figure(line, "predicted_mib"),
             f"{line['peak_mib']:.0f} ({line['peak_mib'] / line['predicted_mib'] - 1:+.1%})",
             _figure(line, "first_mib"), _figure(line, "reserved_mib"),
             f"{_figure(line, 'graphs_mib')} of {_figure(line, 'graphs_reserved_mib')}",
             f"{line['planned']:+.1%}", "–" if line.get("bound") is None else f"{line['bound']:+.1%}",
             f"{line['over']:+.1%}" if "over" in line else "–", _figure(line, "ms", 1), _figure(line, "host_ms", 1),
             _figure(line, "first_s", 1)] for line in lines]
    return _table(["network", "budget", "all MiB: budget", "predicted", "measured", "first steps", "reserved", "graphs",
                   "planned time", "proven", "measured time", "ms", "host ms", "first step s"], rows)


def _batches(found: dict, names: list[str]) -> str:
    rows = []
    for name in names:
        eager, mine = found[name, ("max-batch", "eager")], found.get((name, ("max-batch", "reprise")), {})
        ok = "error" not in eager and mine and "error" not in mine
        rows.append([f"{name}, {eager.get('shape', '')}", *(_figure(line, field) for line in (eager, mine) for field in
                                                            ("max_batch", "peak_mib", "images_per_s")),
                     f"{mine['max_batch'] / eager['max_batch']:.2f} times" if ok else "–"])
    return _table(["largest batch", "eager", "peak MiB", "images/s", "Reprise", "peak MiB", "images/s", ""], rows)


def _figure(line: dict, field: str, digits: int = 0) -> str:
    return "–" if line.get(field) is None else f"{line[field]:.{digits}f}"


def _beside(line: dict) -> str:
    """Memory, and time over eager's."""
    return f"{line['mib']:.0f}, {line['over']:+.0%}" if "over" in line else _figure(line, "mib")


def _points(lines: list[dict], plain: float | None) -> list[dict]:
    """Each measured budget: its share of the plain activations, and the intermediate memory. "min" is what it took."""
    found = []
    for line in lines:
        if line["method"] == "compile":
            found.append({"by": "torch.compile", "share": float(line["budget"]), "mib": line["mib"]})
        elif line["budget"].endswith("%"):
            found.append({"by": "Reprise", "share": float(line["budget"][:-1]) / 100, "mib": line["mib"]})
        elif line["budget"] == "min" and plain:
            found.append({"by": "Reprise", "share": line["mib"] / plain, "mib": line["mib"]})
    return found


def svg(lines: list[dict], network: str) -> str | None:
    """None where fewer than two budgets of each were measured."""
    lines = [line for line in lines if line["network"] == network and "mib" in line]
    plain = next((line["mib"] for line in lines if key(line)[1] == PLAIN), None)
    found = _points(lines, plain)
    if any(sum(point["by"] == by for point in found) < 2 for by in ("Reprise", "torch.compile")):
        return None
    eager = [] if plain is None else [{"by": "eager", "mib": plain}]
    colour = {"field": "by", "type": "nominal", "title": None,
              "scale": {"domain": [*COLOURS], "range": [*COLOURS.values()]}}
    y = {"field": "mib", "type": "quantitative", "title": f"intermediate memory of {network}, MiB",
         "scale": {"zero": True}}
    x = {"field": "share", "type": "quantitative", "title": "budget, of the plain step's activations",
         "axis": {"format": ".0%"}, "scale": {"domain": [0, 1]}}
    return draw({
        "width": 640, "height": 360, "config": {"background": "white", "font": "Helvetica, Arial, sans-serif"},
        "layer": [{"data": {"values": found}, "mark": {"type": "line", "point": True},
                   "encoding": {"x": x, "y": y, "color": colour}},
                  {"data": {"values": eager}, "mark": {"type": "rule", "strokeDash": [4, 3]},
                   "encoding": {"y": y, "color": colour}}]})
