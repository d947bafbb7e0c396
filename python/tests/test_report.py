# SPDX-License-Identifier: Apache-2.0
"""Reports: what a plan keeps and recomputes, in words and as a page, and the verb `explain`."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import reprise
from reprise import cli
from reprise._core import Graph
from reprise.explain import curve, explain
from reprise.joined import joined
from reprise.page import page, timeline

# a: kept over the loss. b: freed before it, recomputed for 'f3 backward'. c: read by the loss only.
GRAPH = {
    "format": "reprise-graph", "version": 1, "name": "hand", "cost_unit": "units",
    "values": [{"name": "x", "bytes": 4, "resident": True}, {"name": "a", "bytes": 8}, {"name": "b", "bytes": 16},
               {"name": "order1", "bytes": 0, "keep": True}, {"name": "c", "bytes": 2}, {"name": "gc", "bytes": 2},
               {"name": "gb", "bytes": 16}, {"name": "ga", "bytes": 8, "keep": True}],
    "ops": [
        {"name": "stem", "kind": "convolution at my net.py:3", "phase": "forward", "cost": 10, "inputs": ["x"],
         "outputs": ["a"]},
        {"name": "stem#2", "kind": "add+relu_ at my net.py:4", "phase": "forward", "cost": 20, "inputs": ["a"],
         "outputs": ["b"]},
        {"name": "head", "kind": "mean", "phase": "forward", "cost": 5, "recomputable": False, "inputs": ["b"],
         "outputs": ["c", "order1"]},
        {"name": "outside", "phase": "loss", "cost": 0, "workspace": 20, "recomputable": False,
         "inputs": ["c", "order1"], "outputs": ["gc"]},
        {"name": "head backward", "kind": "expand", "phase": "backward", "cost": 5, "inputs": ["gc", "b", "order1"],
         "outputs": ["gb"]},
        {"name": "stem#2 backward", "phase": "backward", "cost": 20, "inputs": ["gb", "a"], "outputs": ["ga"]}],
}
PLAN = {"format": "reprise-plan", "version": 1, "steps": [
    ["compute", "stem"], ["compute", "stem#2"], ["compute", "head"], ["free", "b"], ["compute", "outside"],
    ["free", "c"], ["compute", "stem#2"], ["compute", "head backward"], ["free", "b"], ["free", "gc"],
    ["compute", "stem#2 backward"], ["free", "a"], ["free", "gb"]]}


def explained(graph=GRAPH, plan=PLAN, **taken):
    made = Graph(json.dumps(graph))
    steps = made.read_plan(json.dumps(plan), "plan")
    return explain(made, steps, **taken), made, steps


def test_a_value_there_at_the_loss_and_read_later_is_kept():
    report, _, _ = explained()
    assert [(e.value, e.bytes, e.times) for e in report.kept] == [("a", 8, 1)]


def test_what_the_allocator_holds_beyond_a_step_is_told():
    report, _, _ = explained(reserved_bytes=1000, measured_bytes=700, most_bytes=750, steps=3)
    assert report.fragmentation == pytest.approx(0.3)  # 700 of 1000 bytes were in use
    assert "reserved     1000 B   by PyTorch's allocator, 30.0 % of it not in use" in str(report)
    assert explained()[0].fragmentation is None and "reserved" not in str(explained()[0])


def test_a_kept_value_may_be_read_by_a_recompute_only():
    graph = copy.deepcopy(GRAPH)
    graph["ops"][-1]["inputs"] = ["gb"]
    assert [entry.value for entry in explained(graph)[0].kept] == ["a"]


def test_a_value_freed_and_recomputed_for_backward_is_dropped():
    report, _, _ = explained()
    assert [(e.value, e.bytes, e.times) for e in report.dropped] == [("b", 16, 2)]


@pytest.fixture
def early():
    """A graph whose 'stem#2' runs for backward, and before the loss, as what is checkpointed may; with its plan."""
    graph = copy.deepcopy(GRAPH)
    graph["ops"][1]["phase"] = "backward"
    made = Graph(json.dumps(graph))
    return made, made.read_plan(json.dumps(PLAN), "plan")


def test_forward_ends_where_the_loss_runs(early):
    report, _, _ = explained()
    assert explain(*early).kept == report.kept
    found = curve(*early, resident_bytes=4, released_bytes=1)
    assert found.forward_cost == 35 and found.bytes == [12, 28, 30, 35, 29, 45, 35]


def test_of_two_graphs_all_that_runs_before_the_losses_comes_first(early):
    whole, steps = joined([early, early])
    assert whole.check(steps) == ""
    names = [op["name"] for op in json.loads(whole.to_json())["ops"]]
    computes = [names[step] for step in steps if step >= 0]
    assert names[:3] == computes[:3] == ["stem", "stem#2", "head"]
    assert names[-3:] == ["outside#2", "head backward#2", "stem#2 backward#2"]


def test_the_plain_run_drops_nothing():
    _, graph, _ = explained()
    report = explain(graph, graph.base_run)
    assert [entry.value for entry in report.kept] == ["b", "a"]  # the largest first
    assert report.dropped == [] and report.recomputed == 0 and report.overhead == 0


def test_entries_name_module_op_and_line():
    report, _, _ = explained()
    a, b = report.kept[0], report.dropped[0]
    assert (a.module, a.op, a.line) == ("stem", "convolution", "my net.py:3")
    assert (b.module, b.op, b.line) == ("stem", "add+relu_", "my net.py:4")


def test_bytes_count_what_is_resident():
    report, _, _ = explained()
    # 'head backward': x 4 + a 8 + b 16 + gc 2 + gb 16 = 46. Plain, 'outside': x 4 + a 8 + b 16 + c 2 + gc 2 + 20 = 52.
    assert (report.predicted_bytes, report.peak_op) == (46, "head backward (expand)")
    assert (report.plain_bytes, report.resident_bytes) == (52, 4)


def test_what_the_caller_releases_counts_from_the_loss_on():
    report, _, _ = explained(resident_bytes=100, released_bytes=30)
    # Forward's peak, 'head': a 8 + b 16 + c 2 = 26 over 100; after that 42 over 70 at most.
    assert (report.predicted_bytes, report.peak_op) == (126, "head (mean)")


def test_overhead_is_what_runs_again():
    report, _, _ = explained()
    assert (report.base_cost, report.cost, report.recomputed, report.again) == (60, 80, 1, 1)
    assert report.overhead == pytest.approx(20 / 60)


@pytest.mark.parametrize("unit, cost", [("units", 10), ("units", 1234567), ("ns", 900), ("ns", 999440), ("ns", 999600),
                                        ("ns", 12 * 10**9), ("flops", 99_950_000), ("flops", 5 * 10**16)])
def test_words_are_those_of_the_program(files, unit, cost):
    graph = copy.deepcopy(GRAPH)
    graph["cost_unit"], graph["ops"][0]["cost"] = unit, cost
    with open(files[0], "w", encoding="utf-8") as file:
        json.dump(graph, file)
    said = subprocess.run([cli.PROGRAM, "simulate", *files], capture_output=True, text=True, check=True).stdout
    same = [line for line in said.splitlines() if line.startswith(("cost ", "time ", "again "))]
    assert len(same) == 2 and set(same) <= set(str(explained(graph)[0]).splitlines())


@pytest.mark.parametrize("bound, words", [
    (None, "+33.3 %"), (60, "+33.3 %"), (70, "+33.3 %; no plan needs less than +16.7 % (proven)"),
    (80, "+33.3 %; no plan needs less (proven)")])
def test_the_bound_is_named_where_it_says_something(bound, words):
    report, _, _ = explained(lower_bound=bound)
    assert f"cost             80   {words}\n" in str(report)


def test_a_graph_without_phases_is_refused():
    graph = copy.deepcopy(GRAPH)
    for op in graph["ops"]:
        del op["phase"]
    with pytest.raises(reprise.RepriseError, match="'hand' needs phases"):
        explained(graph)


# The page.
class Reader(HTMLParser):
    """Notes tags that are not closed in order, what is shown, and whatever could fetch something."""

    VOID = {"meta", "br", "img", "link"}

    def __init__(self, text: str):
        super().__init__()
        self.open, self.seen, self.shown, self.fetched = [], set(), [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        self.fetched += [(name, value) for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.shown.append(data)


def test_the_page_is_whole_and_fetches_nothing():
    text = page(*explained(budget_bytes=48))
    found = Reader(text)
    assert text.startswith("<!DOCTYPE html>") and found.open == [] and found.fetched == []
    assert not {"script", "link", "img", "iframe"} & found.seen
    assert "@import" not in text and "@font-face" not in text and "url(http" not in text
    assert "svg" in found.seen and text.count('<table class="values">') == 2


def test_the_page_escapes_names():
    graph = copy.deepcopy(GRAPH)
    graph["name"] = 'a<b> & "c"'
    graph["ops"][0]["name"] = "<script>alert(1)</script>"
    plan = json.loads(json.dumps(PLAN).replace('"stem"]', '"<script>alert(1)</script>"]'))
    text = page(*explained(graph, plan))
    found = Reader(text)
    assert "script" not in found.seen and "b" not in found.seen
    assert 'a<b> & "c"' in found.shown and "<script>alert(1)</script>" in found.shown


def names_in(chart):
    return [layer["encoding"]["color"]["datum"] for layer in chart["layer"] if "color" in layer["encoding"]]


def test_the_chart_shows_what_is_known():
    assert names_in(timeline(*explained())) == ["resident", "plan", "plain"]
    measured = [12, 28, 30, None, 30, 46, 36]
    chart = timeline(*explained(budget_bytes=48, timeline=measured))
    assert names_in(chart) == ["resident", "plan", "plain", "measured", "budget"]


def test_a_budget_far_above_all_else_is_left_out_of_the_chart():
    assert "budget" not in names_in(timeline(*explained(budget_bytes=1000)))


def test_the_charts_areas_reach_the_peaks():
    layers = {layer["encoding"]["color"]["datum"]: layer["data"]["values"]
              for layer in timeline(*explained(budget_bytes=48))["layer"] if "color" in layer["encoding"]}
    assert max(point["y"] for point in layers["plan"]) == 46
    assert max(point["y"] for point in layers["plain"]) == 52
    assert layers["plan"][-1]["x"] == 80 and layers["plain"][-1]["x"] == 60
    assert layers["budget"] == [{"y": 48}] and layers["resident"] == [{"y": 4}]


def test_the_chart_shows_the_plain_step_as_it_runs_without_the_plan():
    """Of which the plan runs some ops in parts, with less workspace."""
    plain = copy.deepcopy(GRAPH)
    for op in plain["ops"]:
        op["workspace"] = op.get("workspace", 0) + 100
    report, graph, steps = explained(plain=Graph(json.dumps(plain)))
    chart = timeline(report, graph, steps, Graph(json.dumps(plain)))
    drawn = next(layer["data"]["values"] for layer in chart["layer"]
                 if layer["encoding"].get("color", {}).get("datum") == "plain")
    assert max(point["y"] for point in drawn) == report.plain_bytes == 152


def test_a_page_without_vl_convert_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(reprise.RepriseError, match="pip install vl-convert-python"):
        page(*explained())


# The verb.
@pytest.fixture
def files(tmp_path):
    graph, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    graph.write_text(json.dumps(GRAPH))
    plan.write_text(json.dumps(PLAN))
    return str(graph), str(plan)


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["reprise", *words])
        try:
            code = cli.main()
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return call


def test_explain_prints_the_report(run, files):
    assert run("explain", *files) == (0, str(explained()[0]), "")


def test_explain_prints_json(run, files):
    code, out, _ = run("explain", *files, "--json")
    assert code == 0 and json.loads(out) == json.loads(explained()[0].to_json())


def test_explain_writes_the_page_beside_the_words(run, files, tmp_path):
    code, out, _ = run("explain", *files, "-o", str(tmp_path / "page.html"))
    assert (code, out) == (0, str(explained()[0]))
    assert (tmp_path / "page.html").read_text() == page(*explained())
    assert [path.name for path in tmp_path.glob("page*")] == ["page.html"]


def test_a_page_on_standard_output_sends_the_words_to_standard_error(run, files):
    assert run("explain", *files, "-o", "-") == (0, page(*explained()), str(explained()[0]))


def test_explain_shows_what_was_measured(run, files, tmp_path):
    took = explained(resident_bytes=10, budget_bytes=60, measured_bytes=55, most_bytes=56, steps=3,
                     timeline=[18, 34, 36, None, 36, 52, 42])[0]
    (tmp_path / "took.json").write_text(took.to_json())
    code, out, _ = run("explain", *files, "--measured", str(tmp_path / "took.json"))
    assert (code, out) == (0, str(took)) and "measured       55 B   last of 3 steps; 56 B at most\n" in out


@pytest.mark.parametrize("content, words", [
    ("{", "not a report"), ("[]", "not a report"), ('{"steps": 1}', "not a report"),
    (explained(timeline=[1, 2])[0].to_json(), "of another plan: 2 computes, not 7")])
def test_what_is_no_measurement_of_this_plan_is_refused(run, files, tmp_path, content, words):
    (tmp_path / "took.json").write_text(content)
    code, out, err = run("explain", *files, "--measured", str(tmp_path / "took.json"))
    assert (code, out) == (2, "") and words in err and err.startswith(f"reprise: {tmp_path}/took.json: ")


@pytest.mark.parametrize("words, complaint", [
    ([], "reprise explain: the following arguments are required: GRAPH, PLAN (see reprise explain --help)\n"),
    (["none.json", "none.json"], "reprise: none.json: can't read: No such file or directory\n"),
    (["-", "-"], "reprise explain: standard input can't be both graph and plan (see reprise explain --help)\n"),
    (["g", "p", "--json", "-o", "-"], "reprise explain: --json needs another --output: standard output can't take both "
                                      "(see reprise explain --help)\n")])
def test_bad_usage_is_one_sentence_and_code_2(run, words, complaint):
    assert run("explain", *words) == (2, "", complaint)


def test_a_bad_graph_is_named_by_its_file(run, files):
    with open(files[0], "w", encoding="utf-8") as file:
        file.write(json.dumps(GRAPH).replace('"bytes": 16', '"bytes": 1.5', 1))
    code, _, err = run("explain", *files)
    assert code == 2 and err == f"reprise: {files[0]}: values[2].bytes: 1.5 is not a whole number\n"


def test_a_plan_that_breaks_a_rule_ends_with_5(run, files):
    with open(files[1], "w", encoding="utf-8") as file:
        json.dump({**PLAN, "steps": PLAN["steps"][1:]}, file)
    code, out, err = run("explain", *files)
    assert (code, out) == (5, "") and err.startswith(f"{files[1]}: ") and err.count("\n") == 1


def test_help_lists_explain_among_the_verbs(run):
    code, out, _ = run("--help")
    assert code == 0
    assert out.index("\nVerbs:") < out.index("\n  explain   ") < out.index("\nreprise VERB --help")


def test_other_verbs_go_to_the_program():
    ours = subprocess.run([sys.executable, "-c", "import sys; from reprise_program import main; sys.exit(main())", "plan"],
                          capture_output=True, text=True)
    theirs = subprocess.run([cli.PROGRAM, "plan"], capture_output=True, text=True)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


# A module that trains.
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(*[nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
                                      for _ in range(4)])
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model = reprise.compile(Net(), "60%", plan_seconds=None, plan_iterations=2000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 3, 32, 32)  # held by us: a step lets go of inputs that nobody holds
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    return model


def test_a_report_before_the_first_step_is_refused():
    with pytest.raises(reprise.RepriseError, match="run a training step first"):
        reprise.compile(Net(), "60%").report()


def test_a_report_adds_up(trained):
    report = trained.report()
    assert report.measured_bytes <= report.most_bytes <= report.budget_bytes < report.plain_bytes
    assert report.cost == pytest.approx(report.base_cost * (1 + report.overhead))
    assert report.overhead > 0 and report.recomputed > 0 and report.steps >= 1
    assert report.lower_bound <= report.cost


def test_no_compute_was_measured_above_the_peak_or_below_what_was_there(trained):
    report = trained.report()
    levels = [level for level in report.timeline if level is not None]
    assert max(levels) <= report.most_bytes
    assert min(levels) >= report.resident_bytes
    assert len(report.timeline) == sum(kind == "compute" for kind, _ in json.loads(trained.plan)["steps"])


def test_a_report_names_the_modules_and_lines_of_the_model(trained):
    report = trained.report()
    assert report.kept and report.dropped
    modules = {name for name, _ in trained.named_modules()}
    for entry in report.kept + report.dropped:
        assert entry.module in modules | {entry.op} and "test_report.py:" in entry.line, entry
    assert all(entry.times > 1 for entry in report.dropped)


def test_a_report_with_a_path_writes_the_page(trained, tmp_path):
    report = trained.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert Reader(text).open == [] and report.kept[0].module in text
    assert len(text) < 200_000


def test_explain_tells_the_same_from_files(trained, run, tmp_path):
    report = trained.report(tmp_path / "ours.html")
    for name, content in (("graph", trained.graph), ("plan", trained.plan), ("took", report.to_json())):
        (tmp_path / f"{name}.json").write_text(content)
    code, out, _ = run("explain", str(tmp_path / "graph.json"), str(tmp_path / "plan.json"), "--measured",
                       str(tmp_path / "took.json"), "-o", str(tmp_path / "theirs.html"))
    assert (code, out) == (0, str(report))
    assert (tmp_path / "theirs.html").read_text() == (tmp_path / "ours.html").read_text()


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.GELU())
                                                   for _ in range(4))) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


def test_a_report_of_a_model_in_two_graphs_is_of_the_whole_step():
    model = Broken()
    compiled = reprise.compile(model, "70%", plan_iterations=500)
    for _ in range(4):
        compiled(torch.randn(256, 16)).square().mean().backward()
        model.zero_grad()
    report, steps = compiled.report(), json.loads(compiled.plan)["steps"]
    assert {entry.module.split(".")[0] for entry in report.kept + report.dropped} == {"first", "second"}
    assert report.recomputed and report.measured_bytes == pytest.approx(report.predicted_bytes, rel=0.02)
    assert len(report.timeline) == sum(kind == "compute" for kind, _ in steps)
    assert max(level for level in report.timeline if level is not None) <= report.most_bytes

    whole = Graph(compiled.graph)
    assert whole.check(whole.read_plan(compiled.plan, "plan")) == ""
    assert report.predicted_bytes == pytest.approx(
        report.resident_bytes + whole.replay(whole.read_plan(compiled.plan, "plan"))["peak_bytes"], rel=0.02)


def test_a_report_of_the_fx_executor_predicts():
    compiled = reprise.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), "90%", executor="fx")
    compiled(torch.randn(64, 8)).sum().backward()
    report = compiled.report()
    assert report.predicted_bytes > report.resident_bytes and report.measured_bytes is None
