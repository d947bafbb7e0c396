# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from example_graphs import net_graph, plan_of, thrifty_steps


def swapped(steps, i):
    return [*steps[:i], steps[i + 1], steps[i], *steps[i + 2 :]]


def without(steps, i):
    return [*steps[:i], *steps[i + 1 :]]


RIGHT = thrifty_steps()
BROKEN = {
    "reads what is not there": (without(RIGHT, 9), 9, "'b2' reads 'a', which is not there"),
    "frees what is not there": (RIGHT + [["free", "ga"]], 15, "frees 'ga', which is not there"),
    "frees a resident value": ([["free", "x"]], 0, "frees 'x', which is resident"),
    "runs too early": (swapped(RIGHT, 0), 0, "'f2' reads 'a', which is not there"),
    "leaves an op out": (RIGHT[:13], 13, "at the end: 'b1' never ran"),
    "loses a result": (RIGHT + [["free", "gw"]], 16, "'gw' is kept, and is not there"),
    "does nothing": ([], 0, "at the end: 'f1' never ran"),
}


def test_a_right_plan_is_exit_0_with_its_peak_and_cost(reprise, net, thrifty):
    run = reprise("check", net, thrifty)
    assert (run.code, run.err) == (0, "")
    assert run.out == "right: 15 steps, peak 30 B, cost 37 ns\n"
    assert reprise("check", net, thrifty, "--json").json() == {
        "right": True,
        "graph": "net",
        "steps": 15,
        "peak_bytes": 30,
        "cost": 37,
        "broken_at_step": None,
        "message": None,
    }


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_rule_is_exit_5_with_the_first_step_that_breaks_it(reprise, net, write, defect):
    steps, step, message = BROKEN[defect]
    plan = write("plan.json", plan_of(steps))
    run = reprise("check", net, plan)
    assert (run.code, run.out) == (5, "")
    assert run.err.startswith("plan.json: ") and run.err.endswith(message + "\n")
    assert run.err.count("\n") == 1

    run = reprise("check", net, plan, "--json")
    answer = run.json()
    assert run.code == 5
    assert (answer["right"], answer["broken_at_step"]) == (False, step)
    assert (answer["peak_bytes"], answer["cost"]) == (None, None)
    assert answer["message"].endswith(message)


def test_an_op_that_may_not_run_again_runs_once(reprise, write, thrifty):
    graph = net_graph()
    graph["ops"][0]["recomputable"] = False
    run = reprise("check", write("once.json", graph), thrifty)
    assert run.code == 5
    assert run.err == "thrifty.json: steps[9]: 'f1' runs a second time, and may run once only\n"


def test_a_wrong_claim_is_exit_5_with_both_numbers(reprise, net, write):
    wrong_peak = write("peak.json", plan_of(thrifty_steps(), peak_bytes=29, cost=37))
    run = reprise("check", net, wrong_peak)
    assert (run.code, run.err) == (5, "peak.json: peak_bytes says 29, the plan takes 30\n")
    wrong_cost = write("cost.json", plan_of(thrifty_steps(), peak_bytes=30, cost=36))
    run = reprise("check", net, wrong_cost)
    assert (run.code, run.err) == (5, "cost.json: cost says 36, the plan costs 37\n")


def test_a_plan_above_the_budget_is_exit_5(reprise, net, thrifty):
    assert reprise("check", net, thrifty, "--budget", "30").code == 0
    run = reprise("check", net, thrifty, "--budget", "29")
    assert (run.code, run.err) == (5, "thrifty.json: the plan takes 30 B, the budget on the peak is 29 B\n")


def test_a_plan_for_another_graph_is_refused_and_other_costs_or_names_are_not(reprise, net, write):
    words = ("plan", net, "--budget", "30", "--solver", "store-last", "-o", "plan.json")
    assert reprise(*words).code == 0
    other = net_graph()
    other["values"][1]["bytes"] = 11
    run = reprise("check", write("other.json", other), "plan.json")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise: plan.json: the plan is for another graph: its fingerprint")
    assert run.err.count("\n") == 1

    dearer = {**net_graph(), "name": "dearer"}
    dearer["ops"][3]["cost"] = 2
    run = reprise("check", write("dearer.json", dearer), "plan.json")
    assert (run.code, run.err) == (5, "plan.json: cost says 44, the plan costs 45\n")


def test_a_plan_by_hand_needs_steps_only(reprise, net, write):
    assert reprise("check", net, write("plan.json", plan_of(thrifty_steps()))).code == 0


def test_graph_or_plan_come_from_standard_input(reprise, net, thrifty, tmp_path):
    graph, plan = (tmp_path / net).read_bytes(), (tmp_path / thrifty).read_bytes()
    assert reprise("check", "-", thrifty, stdin=graph).code == 0
    assert reprise("check", net, "-", stdin=plan).code == 0
    wrong = json.dumps(plan_of([["compute", "f9"]])).encode()
    run = reprise("check", net, "-", stdin=wrong)
    assert run.code == 2
    assert run.err.startswith("reprise: <stdin>: steps[0]: unknown op 'f9'")
    for verb in ("check", "simulate"):
        run = reprise(verb, net, "-", stdin=json.dumps(plan_of([])).encode())
        assert (run.code, run.err) == (5, "<stdin>: at the end: 'f1' never ran\n")


def test_costs_past_64_bits_are_an_error_and_not_a_wrong_number(reprise, write):
    graph = {
        "format": "reprise-graph",
        "version": 1,
        "values": [{"name": "y", "bytes": 1, "keep": True}],
        "ops": [{"name": "f", "cost": 5_000_000_000_000_000_000, "inputs": [], "outputs": ["y"]}],
    }
    name = write("dear.json", graph)
    twice = write("twice.json", plan_of([["compute", "f"], ["compute", "f"]]))
    for verb in ("check", "simulate"):
        run = reprise(verb, name, twice)
        assert (run.code, run.out) == (2, "")
        assert "costs add up to more than 9223372036854775807" in run.err
