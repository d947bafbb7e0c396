# SPDX-License-Identifier: Apache-2.0
"""The default solver measured: what tables and JSON say of it, alone and without its techniques."""

import json

import pytest

from example_graphs import net_graph, write_long_chain
from running import ROOT, press_ctrl_c

CASE = [
    "file", "graph", "budget", "budget_bytes", "base_peak_bytes", "base_cost", "status", "plans", "overhead",
    "worst_overhead", "proven_overhead", "gap_points", "seconds_to_near", "seconds_to_best", "published", "runs",
]  # fmt: skip
RUN = [
    "seed", "status", "peak_bytes", "cost", "overhead", "lower_bound", "bound_scope", "smallest_peak_bytes",
    "solve_seconds", "seconds_to_near", "seconds_to_best",
]  # fmt: skip
TECHNIQUE = ["technique", "what", "pairs", "plans_earned", "overhead_earned", "bound_earned", "time_without"]
FEW = ("--iterations", "200")  # enough for net_graph()


def without_seconds(answer):
    for case in answer["cases"]:
        for entry in (case, *case["runs"]):
            for field in [name for name in entry if "seconds" in name]:
                del entry[field]
    for row in answer.get("techniques", []):
        del row["time_without"]
    return answer


def test_each_budget_is_a_case_with_a_run_for_each_seed(reprise, net):
    run = reprise("bench", net, "--budgets", "100%,30", "--seeds", "4,2", *FEW, "--json")
    answer = run.json()
    assert (run.code, run.err) == (0, "")
    assert list(answer) == ["cases", "not_run"]
    assert all(list(case) == CASE for case in answer["cases"])
    assert all(list(entry) == RUN for case in answer["cases"] for entry in case["runs"])
    assert [[entry["seed"] for entry in case["runs"]] for case in answer["cases"]] == [[4, 2], [4, 2]]
    assert answer["not_run"] == 0
    # Plain: 40 B at cost 34. At 30 B a has to be made again, for 3.
    plain, tight = answer["cases"]
    assert (plain["budget"], plain["budget_bytes"], plain["status"], plain["overhead"]) == ("100%", 40, "optimal", 0)
    assert (tight["file"], tight["plans"], tight["base_peak_bytes"], tight["base_cost"]) == ("net.json", 2, 40, 34)
    assert tight["overhead"] == tight["worst_overhead"] == tight["proven_overhead"] == pytest.approx(3 / 34)
    assert tight["gap_points"] == 0


def test_a_plan_is_near_before_it_is_best_and_best_before_the_end(reprise, net):
    case = reprise("bench", net, "--budgets", "30", *FEW, "--json").json()["cases"][0]
    for run in case["runs"]:
        assert 0 <= run["seconds_to_near"] <= run["seconds_to_best"] <= run["solve_seconds"]
    assert case["seconds_to_best"] == sorted(run["seconds_to_best"] for run in case["runs"])[1]


def test_the_gap_is_in_points_of_overhead(reprise, net):
    words = ("--budgets", "30", "--without", "cut-bound", *FEW)
    case = reprise("bench", net, *words, "--json").json()["cases"][0]
    assert (case["status"], case["proven_overhead"]) == ("feasible", 0)
    assert case["gap_points"] == pytest.approx(100 * 3 / 34)
    line = reprise("bench", net, *words).out.splitlines()[-1].split()
    assert line[:8] == ["30", "+8.82", "%", "+8.82", "%", "0", "%", "8.8235"]


def test_what_no_plan_can_meet_has_no_overhead(reprise, net):
    case = reprise("bench", net, "--budgets", "29", *FEW, "--json").json()["cases"][0]
    assert (case["status"], case["plans"]) == ("infeasible", 0)
    assert case["overhead"] is case["worst_overhead"] is case["seconds_to_best"] is case["gap_points"] is None
    line = reprise("bench", net, "--budgets", "29", *FEW).out.splitlines()[-1].split()
    assert line == ["29", "–", "–", "–", "–", "–", "–", "infeasible"]


def test_the_protocol_is_the_default(reprise, net):
    answer = reprise("bench", net, *FEW, "--json").json()
    assert [case["budget"] for case in answer["cases"]] == [f"{share}%" for share in range(90, 20, -10)]
    assert all([run["seed"] for run in case["runs"]] == [0, 1, 2] for case in answer["cases"])


def test_without_graphs_it_makes_two_that_are_always_the_same(reprise):
    words = ("bench", "--budgets", "99%", "--seeds", "0", "--iterations", "10", "--json")
    one, other = (without_seconds(reprise(*words).json()) for _ in range(2))
    assert one == other
    facts = [(case["file"], case["graph"], case["base_peak_bytes"]) for case in one["cases"]]
    assert facts == [(None, "residual", 62920704), (None, "layered", 64127)]


def test_markdown_has_a_table_a_graph(reprise, net, write, tmp_path):
    (tmp_path / "graphs").mkdir()
    write("graphs/one|1.json", net_graph())
    lines = reprise("bench", net, "graphs", "--budgets", "30", *FEW, "--markdown").out.splitlines()
    assert lines[:4] == [
        "**net**: 7 ops; plain: 40 B, 34 ns",
        "",
        "| budget | overhead | worst | bound | gap | near (s) | best (s) | status |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    assert lines[4].startswith("| 30 | +8.82 % | +8.82 % | +8.82 % | 0 | ")
    assert lines[4].endswith(" | optimal |")
    assert lines[6].startswith("**one\\|1**")


def test_published_figures_stand_beside_the_graphs_they_are_for(reprise, shared):
    words = ("bench", shared / "nodelink/G3.json", "--budgets", "80%,70%,60%", "--seeds", "0", "--iterations", "1")
    cases = reprise(*words, "--time-limit", "100ms", "--json").json()["cases"]
    assert cases[0]["published"] == [
        {"method": "Checkmate", "overhead": None, "seconds": None, "met": False},
        {"method": "Moccasin", "overhead": 0.034, "seconds": 1805.0, "met": True},
        {"method": "FastSA", "overhead": 0.023, "seconds": 20.9, "met": True},
    ]
    assert [(figure["method"], figure["met"]) for figure in cases[1]["published"]] == [("FastSA", False)]
    assert cases[2]["published"] == []
    lines = reprise(*words, "--time-limit", "100ms").out.splitlines()
    assert lines[1].split()[-3:] == ["Checkmate", "Moccasin", "FastSA"]
    assert "time out   +3.4 % in 1805 s   " in lines[2] and lines[2].endswith("+2.3 % in 20.9 s")
    assert lines[3].endswith("+4.8 % in 21.2 s, missed")


def test_each_technique_has_a_row_that_says_what_it_earns(reprise, net):
    words = ("bench", net, "--budgets", "100%,30", "--seeds", "0", *FEW, "--ablation")
    answer = reprise(*words, "--json").json()
    rows = {row["technique"]: row for row in answer["techniques"]}
    assert all(list(row) == TECHNIQUE and row["pairs"] == 2 and row["plans_earned"] == 0 for row in rows.values())
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert all(f"\n| `{name}` |" in page for name in rows)
    # Without a cut nothing is proven but the plain cost: 3 of 34 less at one of two budgets.
    assert rows["cut-bound"]["bound_earned"] == pytest.approx(3 / 34 / 2)
    assert rows["drop"]["bound_earned"] == 0
    lines = reprise(*words).out.splitlines()
    assert lines[1].split() == ["without", "overhead", "bound", "time", "plans", "pairs"]
    assert [line.split()[0] for line in lines[2:]] == list(rows)
    assert next(line for line in lines if line.startswith("cut-bound")).split()[1:3] == ["0", "-4.4118"]


def test_what_is_left_out_already_is_not_judged(reprise, net):
    words = ("bench", net, "--budgets", "30", "--seeds", "0", *FEW, "--ablation", "--json")
    names = [row["technique"] for row in reprise(*words).json()["techniques"]]
    fewer = reprise(*words, "--without", "drop", "--without", "pull").json()
    assert [row["technique"] for row in fewer["techniques"]] == [n for n in names if n not in ("drop", "pull")]


def test_threads_do_not_change_the_answer(reprise, net):
    words = ("bench", net, "--budgets", "35,30", *FEW, "--ablation", "--json")
    one, four = (reprise(*words, "--threads", threads).json() for threads in ("1", "4"))
    assert without_seconds(one) == without_seconds(four)


def test_runs_that_are_kept_are_not_repeated(reprise, net, tmp_path):
    words = ("bench", net, "--budgets", "30", *FEW, "-o", "runs.jsonl", "--json")
    first = reprise(*words, "--seeds", "0,1").json()
    kept = (tmp_path / "runs.jsonl").read_text()
    assert kept.count("\n") == 3
    again = reprise(*words, "--seeds", "0,1").json()  # with its times
    for one, other in zip(first["cases"][0]["runs"], again["cases"][0]["runs"], strict=True):
        assert {**one, "solve_seconds": 0} == pytest.approx({**other, "solve_seconds": 0}, abs=1e-6)
    (tmp_path / "runs.jsonl").write_text(kept.replace('"cost":37', '"cost":38'))
    assert reprise(*words, "--seeds", "0,1").json()["cases"][0]["runs"][0]["cost"] == 38
    reprise(*words, "--seeds", "1,2")
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 4


def test_a_technique_that_is_left_out_makes_another_run(reprise, net, tmp_path):
    words = ("bench", net, "--budgets", "30", "--seeds", "0", *FEW, "-o", "runs.jsonl")
    rows = reprise(*words, "--ablation", "--json").json()["techniques"]
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 1 + 1 + len(rows)
    reprise(*words, "--without", "drop")
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 1 + 1 + len(rows)


def test_without_holds_for_every_verb_that_solves(reprise, net):
    plan = ("plan", net, "--budget", "30", *FEW, "--json")
    assert reprise(*plan).json()["lower_bound"] == 37
    assert reprise(*plan, "--without", "cut-bound").json()["lower_bound"] == 34
    for verb in ("sweep", "compare"):
        words = (verb, net, "--solvers", "auto", *FEW, "--without", "cut-bound", "--json")
        answer = reprise(*words).json()
        runs = answer["points"] if verb == "sweep" else answer["runs"]
        assert all(run["lower_bound"] in (34, None) for run in runs)
    batch = ("max-batch", net, "--budget", "60", *FEW, "--json")
    rows = reprise("bench", net, "--budgets", "30", *FEW, "--ablation", "--json").json()["techniques"]
    assert reprise(*batch).json()["batch"] == 2
    assert reprise(*batch, *(f"--without={row['technique']}" for row in rows)).json()["batch"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("missing.json",),
        ("empty",),
        ("net.json", "--budgets", ""),
        ("net.json", "--budgets", "50%,"),
        ("net.json", "--budgets", "half"),
        ("net.json", "--budgets", "50%,min"),
        ("net.json", "--seeds", ""),
        ("net.json", "--seeds", "0,"),
        ("net.json", "--seeds", "0,one"),
        ("net.json", "--seeds", "-1"),
        ("net.json", "--seed", "1"),
        ("net.json", "--without", "gravity"),
        ("net.json", "--without"),
        ("net.json", "--threads", "0"),
        ("net.json", "--json", "--markdown"),
        ("net.json", "-o", "-"),
        ("net.json", "-o", "."),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2_and_one_sentence(reprise, net, tmp_path, words):
    (tmp_path / "empty").mkdir()
    run = reprise("bench", *words)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise") and run.err.count("\n") == 1


def test_ctrl_c_ends_with_what_is_done_and_the_same_command_goes_on(terminal, net, tmp_path):
    write_long_chain(tmp_path / "chain.json", 100)
    words = ("bench", net, "chain.json", "--budgets", "30", "--seeds", "0,1", "--time-limit", "1h")
    run = terminal(*words, "-o", "runs.jsonl", "--json", streams=["stderr"], watch=press_ctrl_c("2 of 4 runs done"))
    assert run.code == 4
    answer = json.loads(run.out)
    assert [case["status"] for case in answer["cases"]] == ["optimal", "not run"]
    assert answer["not_run"] == 2
    last = run.err.rsplit("\r\x1b[K", 1)[1]
    assert last == "reprise: bench was stopped with 2 of 4 runs done: the same command goes on from there\n"
    assert (tmp_path / "runs.jsonl").read_text().count("\n") == 3
