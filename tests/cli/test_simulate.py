# SPDX-License-Identifier: Apache-2.0
from example_graphs import plan_of, thrifty_steps


def test_json_has_the_bytes_at_each_step(reprise, net, thrifty):
    run = reprise("simulate", net, thrifty, "--json")
    assert (run.code, run.err) == (0, "")
    answer = run.json()
    assert answer.pop("overhead") == 3 / 34
    assert answer == {
        "graph": "net",
        "steps": 15,
        "budget_bytes": None,
        "peak_bytes": 30,
        "peak_step": 4,
        "peak_op": "loss",
        "resident_bytes": 5,
        "cost": 37,
        "base_cost": 34,
        "base_peak_bytes": 40,
        "alive_at_peak": [
            {"name": "b", "bytes": 10},
            {"name": "c", "bytes": 10},
            {"name": "gc", "bytes": 10},
        ],
        # f1: a; f2: a b; then b; f3: b c; loss: b c gc; then b gc; b3: b gc gb; then gc gb;
        # then gb; f1: gb a; b2: gb a ga; then gb ga; then ga; b1: ga gw (5); then gw.
        "bytes_in_use": [10, 20, 10, 20, 30, 20, 30, 20, 10, 20, 30, 20, 10, 15, 5],
    }


def test_without_a_plan_it_is_the_plain_run(reprise, net):
    answer = reprise("simulate", net, "--json").json()
    assert (answer["peak_bytes"], answer["cost"], answer["overhead"]) == (40, 34, 0)
    assert answer["peak_op"] == "loss"


def test_an_output_over_a_dying_input_counts_once(reprise, write):
    graph = {
        "format": "reprise-graph",
        "version": 1,
        "values": [
            {"name": "x", "bytes": 4, "resident": True},
            {"name": "h", "bytes": 8},
            {"name": "y", "bytes": 8, "keep": True},
        ],
        "ops": [
            {"name": "conv", "cost": 1, "workspace": 2, "inputs": ["x"], "outputs": ["h"]},
            {"name": "relu", "cost": 1, "inputs": ["h"], "outputs": ["y"]},
        ],
    }
    graph["ops"][1]["overwrites"] = {"y": "h"}
    name = write("over.json", graph)
    # conv: h 8 + workspace 2 = 10; relu: h and y share 8.
    assert reprise("simulate", name, "--json").json()["bytes_in_use"] == [10, 8, 8]
    # Where h stays, relu has both: 16.
    stays = write("stays.json", plan_of([["compute", "conv"], ["compute", "relu"]]))
    assert reprise("simulate", name, stays, "--json").json()["bytes_in_use"] == [10, 16]


def test_a_broken_plan_is_exit_5(reprise, net, write):
    plan = write("plan.json", plan_of(thrifty_steps()[1:]))
    for options in ((), ("--json",)):
        run = reprise("simulate", net, plan, *options)
        assert (run.code, run.out) == (5, "")
        assert run.err == "plan.json: steps[0]: 'f2' reads 'a', which is not there\n"


def test_the_report_draws_plan_plain_run_and_budget(reprise, net, thrifty):
    run = reprise("simulate", net, thrifty, "--budget", "35")
    assert (run.code, run.err) == (0, "")
    assert "35 B   88 % of the plain peak" in run.out
    assert all(mark in run.out for mark in ("plain ┄┄", "plan ██", "budget ──", "▲"))
    assert "budget ──" not in reprise("simulate", net, thrifty).out
