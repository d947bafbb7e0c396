# SPDX-License-Identifier: Apache-2.0
"""Solvers side by side: what tables, JSON and CSV say, and what is kept of a run that was ended."""

import csv
import io
import json
import math

import pytest

from example_graphs import net_graph, write_long_chain
from running import press_ctrl_c

FIELDS = [
    "file", "graph", "solver", "budget", "budget_bytes", "status", "peak_bytes", "cost", "overhead",
    "lower_bound", "bound_scope", "smallest_peak_bytes", "solve_seconds", "cost_over_best",
    "base_peak_bytes", "base_cost", "reason",
]  # fmt: skip
HEADER = '{"format":"reprise-runs","version":1}\n'


def without_phases():
    graph = net_graph()
    for op in graph["ops"]:
        del op["phase"]
    return graph


def without_seconds(answer):
    for entry in (*answer["runs"], *answer["solvers"]):
        del entry["solve_seconds"]
    return answer


def by_solver(answer):
    return {run["solver"]: run for run in answer["runs"]}


def test_each_solver_has_a_run_at_each_budget_in_the_order_given(reprise, net):
    run = reprise("compare", net, "--budgets", "100%,30", "--solvers", "store-last,store-all", "--json")
    answer = run.json()
    assert (run.code, run.err) == (0, "")
    assert list(answer) == ["runs", "solvers", "not_run"]
    assert all(list(entry) == FIELDS for entry in answer["runs"])
    # Plain: 40 B at cost 34. Store-last has 30 B at 44.
    facts = [(r["solver"], r["budget"], r["budget_bytes"], r["peak_bytes"], r["cost"]) for r in answer["runs"]]
    assert facts == [
        ("store-last", "100%", 40, 40, 34),
        ("store-all", "100%", 40, 40, 34),
        ("store-last", "30", 30, 30, 44),
        ("store-all", "30", 30, None, None),
    ]
    assert answer["runs"][3]["reason"] == "its smallest peak is 40 B"
    assert answer["not_run"] == 0


def test_means_are_geometric_and_against_the_best_of_each_budget(reprise, net, thrifty):
    words = ("--budgets", "100%,30", "--solvers", "store-last,chen-greedy,store-all", "--json")
    answer = reprise("compare", net, *words).json()
    costs = {(r["solver"], r["budget"]): r["cost"] for r in answer["runs"]}
    best = min(cost for (_, budget), cost in costs.items() if budget == "30" and cost)
    means = {entry["solver"]: entry for entry in answer["solvers"]}
    assert (means["store-all"]["plans"], means["store-all"]["cost_over_best"]) == (1, 1)
    expected = math.sqrt(1 * costs["store-last", "30"] / best)
    assert means["store-last"]["cost_over_best"] == pytest.approx(expected)
    assert means["store-last"]["plans"] == 2


def test_a_solver_that_refuses_the_graph_appears_with_its_reason(reprise, write):
    name = write("bare.json", without_phases())
    words = ("compare", name, "--budgets", "100%", "--solvers", "store-all,revolve")
    refused = by_solver(reprise(*words, "--json").json())["revolve"]
    assert refused["status"] == "unsupported"
    assert refused["reason"].startswith("needs phases")
    assert refused["peak_bytes"] is None and refused["cost_over_best"] is None
    run = reprise(*words)
    assert run.code == 0
    line = next(line for line in run.out.splitlines() if line.startswith("revolve"))
    assert line.split()[1] == "–" and "needs phases" in line
    assert "| revolve | – |" in reprise(*words, "--markdown").out


def test_amounts_past_64_bits_are_a_reason_not_a_crash(reprise, write):
    graph = net_graph()
    graph["ops"][0]["cost"] = 2**61
    name = write("dear.json", graph)
    run = reprise("compare", name, "--budgets", "30", "--solvers", "auto,store-last,ogc", "--json")
    assert run.code == 0
    assert len(run.json()["runs"]) == 3


def test_what_no_plan_can_meet_is_told_from_what_none_was_found_for(reprise, net):
    answer = reprise("compare", net, "--budgets", "29", "--solvers", "auto", "--json").json()
    assert (answer["runs"][0]["status"], answer["runs"][0]["reason"]) == ("infeasible", "no plan fits (proven)")
    words = ("compare", net, "--budgets", "35", "--solvers", "store-last", "--time-limit", "0s", "--json")
    answer = reprise(*words).json()
    assert (answer["runs"][0]["status"], answer["runs"][0]["reason"]) == ("limit", "nothing found before the limit")


def test_min_is_shown_but_is_no_race(reprise, net):
    answer = reprise("compare", net, "--budgets", "min", "--solvers", "store-last,store-all", "--json").json()
    assert [run["peak_bytes"] for run in answer["runs"]] == [30, 40]
    assert all(run["cost_over_best"] is None for run in answer["runs"])
    assert all(entry["cost_over_best"] is None for entry in answer["solvers"])


def test_all_solvers_run_by_default_at_three_budgets(reprise, net):
    listed = [solver["name"] for solver in reprise("solvers", "--json").json()]
    answer = reprise("compare", net, "--time-limit", "1s", "--json").json()
    assert [run["solver"] for run in answer["runs"]] == 3 * listed
    assert {run["budget"] for run in answer["runs"]} == {"80%", "60%", "40%"}


def test_a_folder_is_its_files_by_name(reprise, write, tmp_path):
    (tmp_path / "graphs").mkdir()
    for name in ("two.json", "one.json", ".hidden"):
        write(f"graphs/{name}", net_graph())
    words = ("--budgets", "30", "--solvers", "store-last")
    answer = reprise("compare", "graphs", *words, "--json").json()
    assert [run["file"] for run in answer["runs"]] == ["graphs/one.json", "graphs/two.json"]
    table = reprise("compare", "graphs", *words).out
    assert "one   7 ops" in table and "two   7 ops" in table


def test_files_of_one_name_are_told_apart_by_their_path(reprise, net, write, tmp_path):
    (tmp_path / "other").mkdir()
    write("other/net.json", net_graph())
    out = reprise("compare", net, "other", "--budgets", "30", "--solvers", "auto", "--markdown").out
    assert "**net.json**" in out and "**other/net.json**" in out


def test_csv_has_the_fields_of_the_json(reprise, write):
    name = write("a,b.json", without_phases())
    words = ("compare", name, "--budgets", "100%", "--solvers", "store-all,ogc")
    rows = list(csv.DictReader(io.StringIO(reprise(*words, "--csv").out)))
    for row, run in zip(rows, reprise(*words, "--json").json()["runs"], strict=True):
        assert list(row) == FIELDS
        for field in set(FIELDS) - {"solve_seconds", "cost_over_best", "overhead"}:
            assert row[field] == ("" if run[field] is None else str(run[field])), field


def test_markdown_has_a_table_a_graph_with_the_best_in_bold(reprise, net):
    run = reprise("compare", net, "--budgets", "100%,30,29", "--solvers", "store-all,store-last", "--markdown")
    lines = run.out.splitlines()
    assert lines[:4] == [
        "**net**: 7 ops; plain: 40 B, 34 ns",
        "",
        "| solver | 100% | 30 | 29 | seconds |",
        "|---|--:|--:|--:|--:|",
    ]
    assert lines[4].startswith("| store-all | **0 %** | none | infeasible | ")
    assert lines[5].startswith("| store-last | **0 %** | **+29.4 %** | infeasible | ")


def test_threads_do_not_change_the_answer(reprise, net):
    solvers = "auto,store-last,revolve,ogc,lower-set-exact,checkmate-lp-random"
    words = ("compare", net, "--solvers", solvers, "--budgets", "100%,35,30", "--json")
    one, four = (reprise(*words, "--threads", threads).json() for threads in ("1", "4"))
    assert without_seconds(one) == without_seconds(four)


def test_runs_that_are_kept_are_not_repeated(reprise, net, tmp_path):
    words = ("compare", net, "--solvers", "store-last,store-all", "-o", "runs.jsonl", "--json")
    first = reprise(*words, "--budgets", "30").json()
    lines = (tmp_path / "runs.jsonl").read_text()
    assert lines.startswith(HEADER) and lines.count("\n") == 3
    # What is kept is taken at its word: a changed figure comes back.
    (tmp_path / "runs.jsonl").write_text(lines.replace('"cost":44', '"cost":45'))
    again = reprise(*words, "--budgets", "30").json()
    assert by_solver(again)["store-last"]["cost"] == 45
    assert by_solver(first)["store-last"]["cost"] == 44
    reprise(*words, "--budgets", "30,35")
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 5


@pytest.mark.parametrize("words", [("--seed", "1"), ("--time-limit", "9s"), ("--iterations", "5")], ids=" ".join)
def test_other_limits_are_other_runs(reprise, net, tmp_path, words):
    common = ("compare", net, "--budgets", "30", "--solvers", "store-last", "-o", "runs.jsonl")
    reprise(*common)
    reprise(*common, *words)
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 3


def test_another_graph_or_other_costs_are_other_runs(reprise, net, write, tmp_path):
    words = ("--budgets", "30", "--solvers", "store-last", "-o", "runs.jsonl", "--json")
    assert reprise("compare", net, *words).json()["runs"][0]["cost"] == 44
    graph = net_graph()
    graph["ops"][0]["cost"] = 4
    assert reprise("compare", write("net.json", graph), *words).json()["runs"][0]["cost"] == 44 + 3
    del graph["values"][-1]["keep"]
    reprise("compare", write("net.json", graph), *words)
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 4


@pytest.mark.parametrize("cut", [3, len(HEADER) - 1, len(HEADER) + 20, -1, -30])
def test_a_last_line_that_was_cut_off_is_run_again(reprise, net, tmp_path, cut):
    words = ("compare", net, "--budgets", "30", "--solvers", "store-last,store-all", "-o", "runs.jsonl", "--json")
    whole = without_seconds(reprise(*words).json())
    kept = (tmp_path / "runs.jsonl").read_text()
    (tmp_path / "runs.jsonl").write_text(kept[:cut])
    again = reprise(*words)
    assert (again.code, again.err) == (0, "")
    assert without_seconds(again.json()) == whole
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == kept.count("\n")


NOT_RUNS = {
    "graph": json.dumps(net_graph()),
    "lines": "3\n4\n",
    "newer": '{"format":"reprise-runs","version":2}\n',
    "broken": HEADER + "{]\n",
    "status": HEADER + '{"task":{"solver":"auto","seed":0},"status":"fine"}\n',
    "fields": HEADER + "{}\n",
    "array": HEADER + "[]\n",
}


@pytest.mark.parametrize("content", NOT_RUNS.values(), ids=NOT_RUNS)
def test_a_file_of_something_else_is_refused_and_left_alone(reprise, net, tmp_path, content):
    (tmp_path / "runs.jsonl").write_text(content)
    run = reprise("compare", net, "--budgets", "30", "--solvers", "auto", "-o", "runs.jsonl")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise: runs.jsonl") and run.err.count("\n") == 1
    assert (tmp_path / "runs.jsonl").read_text() == content


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("missing.json",),
        ("net.json", "--budgets", ""),
        ("net.json", "--budgets", "50%,"),
        ("net.json", "--budgets", "half"),
        ("net.json", "--solvers", "auto,,ogc"),
        ("net.json", "--solvers", "store"),
        ("net.json", "--threads", "0"),
        ("net.json", "--time-limit", "soon"),
        ("net.json", "--json", "--csv"),
        ("net.json", "--markdown", "--csv"),
        ("net.json", "-o", "-"),
        ("net.json", "-o", "."),
        ("net.json", "-o", "/dev/null"),
        ("net.json", "-o", "no/such/folder"),
        ("empty",),
        ("with_other",),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2_and_one_sentence(reprise, net, tmp_path, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "with_other").mkdir()
    (tmp_path / "with_other/readme.txt").write_text("not a graph")
    run = reprise("compare", *words)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise") and run.err.count("\n") == 1


def test_ctrl_c_ends_with_what_is_done_and_the_same_command_goes_on(reprise, terminal, net, tmp_path):
    write_long_chain(tmp_path / "chain.json", 20_000)
    words = ("compare", net, "chain.json", "--budgets", "30", "--solvers", "store-all,store-last")
    words = (*words, "--time-limit", "1h", "-o", "runs.jsonl", "--json")
    run = terminal(*words, streams=["stderr"], watch=press_ctrl_c("store-last: op"))
    assert run.code == 4
    answer = json.loads(run.out)
    assert [(r["file"], r["solver"]) for r in answer["runs"]] == [
        ("net.json", "store-all"),
        ("net.json", "store-last"),
        ("chain.json", "store-all"),
    ]
    assert answer["not_run"] == 1
    last = run.err.rsplit("\r\x1b[K", 1)[1]
    assert last == "reprise: compare was stopped with 3 of 4 runs done: the same command goes on from there\n"
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 4
