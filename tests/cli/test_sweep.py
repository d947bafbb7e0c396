# SPDX-License-Identifier: Apache-2.0
"""Overhead over budgets: where a sweep begins and ends, that it never rises, and that it goes on."""

import json

import pytest

from example_graphs import net_graph, write_long_chain
from running import press_ctrl_c

POINT = [
    "solver", "budget_bytes", "status", "peak_bytes", "cost", "overhead", "lower_bound", "bound_scope",
    "smallest_peak_bytes", "solve_seconds",
]  # fmt: skip


def without_seconds(answer):
    for point in answer["points"]:
        del point["solve_seconds"]
    return answer


def curves(answer):
    points = {}
    for point in answer["points"]:
        points.setdefault(point["solver"], []).append(point)
    return points


def test_it_goes_from_the_smallest_peak_to_no_overhead(reprise, net):
    run = reprise("sweep", net, "--points", "3", "--solvers", "store-last", "--json")
    answer = run.json()
    assert (run.code, run.err) == (0, "")
    assert list(answer) == [
        "graph", "base_peak_bytes", "base_cost", "smallest_peak_bound", "points", "not_run",
    ]  # fmt: skip
    assert all(list(point) == POINT for point in answer["points"])
    # Store-last: 30 B at cost 44. Plain: 40 B at 34.
    facts = [(p["budget_bytes"], p["peak_bytes"], p["cost"]) for p in answer["points"]]
    assert facts == [(30, 30, 44), (35, 30, 44), (40, 40, 34)]
    assert [point["overhead"] for point in answer["points"]][-1] == 0


def test_a_table_has_a_line_a_budget_and_a_column_a_solver(reprise, net):
    run = reprise("sweep", net, "--points", "3", "--solvers", "store-last,store-all")
    assert run.out == (
        "net   7 ops; plain: 40 B, 34 ns\n"
        "    budget    share   store-last    store-all\n"
        "      30 B     75 %      +29.4 %         none\n"
        "      35 B     88 %      +29.4 %         none\n"
        "      40 B    100 %          0 %          0 %\n"
    )


@pytest.mark.parametrize("solvers", ["auto", "chen-greedy,chen-greedy-any,chen-sqrt,revolve,ogc,lower-set"])
def test_more_budget_never_costs_more(reprise, tmp_path, solvers):
    layers, count = (20, 8) if solvers == "auto" else (40, 25)
    write_long_chain(tmp_path / "chain.json", layers)
    words = ("--points", str(count), "--solvers", solvers, "--iterations", "500", "--threads", "2", "--json")
    answer = reprise("sweep", "chain.json", *words).json()
    for solver, points in curves(answer).items():
        assert len(points) == count
        costs = [point["cost"] for point in points if point["cost"] is not None]
        assert costs == sorted(costs, reverse=True), solver
        assert [p["cost"] is None for p in points] == sorted((p["cost"] is None for p in points), reverse=True)
        assert all(p["peak_bytes"] <= p["budget_bytes"] for p in points if p["cost"] is not None)
        assert points[-1]["overhead"] == 0


def test_threads_do_not_change_the_answer(reprise, tmp_path):
    write_long_chain(tmp_path / "chain.json", 20)
    words = ("sweep", "chain.json", "--points", "3", "--solvers", "auto,ogc,revolve")
    words = (*words, "--iterations", "500", "--json")
    one, four = (reprise(*words, "--threads", threads).json() for threads in ("1", "4"))
    assert without_seconds(one) == without_seconds(four)


def test_runs_that_are_kept_are_not_repeated(reprise, net, tmp_path):
    words = ("sweep", net, "--solvers", "store-last,chen-sqrt", "-o", "sweep.jsonl", "--json")
    first = reprise(*words, "--points", "3").json()
    kept = (tmp_path / "sweep.jsonl").read_text()
    assert kept.count("\n") == 1 + 2 * (1 + 3)  # a header; for each, the smallest peak and 3 points
    assert reprise(*words, "--points", "3").json() == {
        **first,
        "points": [{**p, "solve_seconds": pytest.approx(p["solve_seconds"], abs=1e-6)} for p in first["points"]],
    }
    assert (tmp_path / "sweep.jsonl").read_text() == kept
    reprise(*words, "--points", "5")  # 30, 32, 35, 37, 40: two more
    assert (tmp_path / "sweep.jsonl").read_text().count("\n") == kept.count("\n") + 2 * 2


def test_a_point_that_was_cut_off_is_run_again(reprise, net, tmp_path):
    words = ("sweep", net, "--points", "3", "--solvers", "store-last", "-o", "sweep.jsonl", "--json")
    whole = without_seconds(reprise(*words).json())
    kept = (tmp_path / "sweep.jsonl").read_text()
    (tmp_path / "sweep.jsonl").write_text(kept[:-40])
    assert without_seconds(reprise(*words).json()) == whole
    assert (tmp_path / "sweep.jsonl").read_text().count("\n") == kept.count("\n")


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(reprise, terminal, tmp_path):
    write_long_chain(tmp_path / "chain.json", 5_000)
    words = ("sweep", "chain.json", "--points", "2", "--solvers", "store-all,store-last")
    words = (*words, "--time-limit", "1h", "-o", "sweep.jsonl", "--json")
    run = terminal(*words, streams=["stderr"], watch=press_ctrl_c("store-last: op"))
    assert run.code == 4
    assert json.loads(run.out)["points"] == []
    assert run.err.rsplit("\r\x1b[K", 1)[1].startswith("reprise: sweep was stopped with 1 of ")
    assert (tmp_path / "sweep.jsonl").read_text().count("\n") == 2
    again = reprise(*words[:3], "2", "--solvers", "store-all", "--time-limit", "1h", "-o", "sweep.jsonl")
    assert again.code == 0
    assert (tmp_path / "sweep.jsonl").read_text().count("\n") == 3  # one budget: the plain peak


def test_a_named_solver_has_to_support_the_graph_and_all_are_those_that_do(reprise, write):
    graph = net_graph()
    for op in graph["ops"]:
        del op["phase"]
    name = write("bare.json", graph)
    run = reprise("sweep", name, "--solvers", "auto,ogc")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise: solver 'ogc' needs phases")
    answer = reprise("sweep", name, "--solvers", "all", "--points", "2", "--time-limit", "100ms", "--json").json()
    assert "ogc" not in curves(answer) and "store-all" in curves(answer)


def test_a_graph_without_bytes_has_one_point(reprise, write):
    graph = net_graph()
    for value in graph["values"]:
        value["bytes"] = 0
    run = reprise("sweep", write("light.json", graph))
    assert run.code == 0
    assert run.out.splitlines()[2:] == ["       0 B                   0 %"]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("missing.json",),
        ("net.json", "--points", "0"),
        ("net.json", "--points", "many"),
        ("net.json", "--solvers", "auto,"),
        ("net.json", "--solvers", "atuo"),
        ("net.json", "--iterations", "0"),
        ("net.json", "--time-limit", "soon"),
        ("net.json", "-o", "net.json"),
        ("net.json", "-o", "/dev/stdout"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2_and_one_sentence(reprise, net, words):
    run = reprise("sweep", *words)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise") and run.err.count("\n") == 1
