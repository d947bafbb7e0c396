# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from example_graphs import net_graph, plan_of, thrifty_steps

FIELDS = [
    "status", "solver", "graph", "ops", "values", "budget_bytes", "peak_bytes", "resident_bytes",
    "cost", "base_cost", "overhead", "base_peak_bytes", "lower_bound", "bound_scope", "gap",
    "smallest_peak_bytes", "smallest_peak_bound", "solve_seconds", "seed",
]  # fmt: skip


def test_json_has_every_field_of_the_design_in_its_order(reprise, net):
    for budget in ("100%", "29", "min"):
        assert list(reprise("plan", net, "--budget", budget, "--json").json()) == FIELDS


def test_a_budget_that_the_plain_run_fits_gives_the_plain_run(reprise, net):
    run = reprise("plan", net, "--budget", "40", "--json", "--seed", "7")
    answer = run.json()
    assert (run.code, run.err) == (0, "")
    assert answer.pop("solve_seconds") >= 0
    # Peak: a + b + c + gc = 40. Cost: 3 + 4 + 5 + 1 + 6 + 7 + 8 = 34, and no plan costs less.
    # Bound on the peak: b3 alone has b + gc + gb = 30.
    assert answer == {
        "status": "optimal",
        "solver": "auto",
        "graph": "net",
        "ops": 7,
        "values": 8,
        "budget_bytes": 40,
        "peak_bytes": 40,
        "resident_bytes": 5,
        "cost": 34,
        "base_cost": 34,
        "overhead": 0,
        "base_peak_bytes": 40,
        "lower_bound": 34,
        "bound_scope": "any",
        "gap": 0,
        "smallest_peak_bytes": 40,
        "smallest_peak_bound": 30,
        "seed": 7,
    }


def test_a_plan_that_computes_again_says_what_it_costs(reprise, net):
    answer = reprise("plan", net, "--budget", "30", "--solver", "store-last", "--json").json()
    # For b3: f1 and f2 again, 7; for b2: f1 again, 3. While b3 runs: b + gc + gb = 30.
    assert answer["status"] == "feasible"
    assert (answer["peak_bytes"], answer["cost"]) == (30, 34 + 7 + 3)
    assert answer["overhead"] == pytest.approx(10 / 34)
    assert answer["gap"] == pytest.approx((44 - 34) / 34)
    assert (answer["smallest_peak_bytes"], answer["smallest_peak_bound"]) == (30, 30)


def test_what_is_undefined_is_null(reprise, write):
    graph = net_graph()
    for op in graph["ops"]:
        op["cost"] = 0
    answer = reprise("plan", write("free.json", graph), "--budget", "40", "--json").json()
    assert (answer["cost"], answer["base_cost"], answer["lower_bound"]) == (0, 0, 0)
    assert (answer["overhead"], answer["gap"]) == (None, None)


def test_a_budget_below_the_largest_op_is_exit_3_and_names_the_op(reprise, net):
    run = reprise("plan", net, "--budget", "29", "--json")
    answer = run.json()
    assert run.code == 3
    assert run.err == (
        "reprise: budget 29 B can't be met: 'b3' alone needs 30 B; best plan found: 30 B\n"
    )
    assert answer["status"] == "infeasible"
    assert answer["smallest_peak_bound"] == 30
    for field in ("peak_bytes", "cost", "overhead", "lower_bound", "bound_scope", "gap"):
        assert answer[field] is None, field


def test_a_budget_that_one_method_misses_is_exit_4_and_says_what_it_reached(reprise, net):
    run = reprise("plan", net, "--budget", "35", "--solver", "store-all", "--json")
    answer = run.json()
    assert run.code == 4
    assert run.err == (
        "reprise: budget 35 B was not met by store-all: best plan found: 40 B; "
        "proven: 'b3' alone needs 30 B\n"
    )
    assert answer["status"] == "limit"
    assert (answer["smallest_peak_bytes"], answer["smallest_peak_bound"]) == (40, 30)


def test_what_is_kept_at_the_end_can_bind(reprise, net):
    keep = [word for value in ("a", "b", "c", "gc") for word in ("--keep", value)]
    run = reprise("plan", net, "--budget", "44", *keep)
    # a + b + c + gc + gw = 45.
    assert run.code == 3
    assert "what is kept at the end needs 45 B" in run.err


def test_a_limit_that_ends_the_search_before_any_plan_is_exit_4(reprise, net):
    options = ("--solver", "store-last", "--time-limit", "0s")
    for budget in ("35", "min"):
        run = reprise("plan", net, "--budget", budget, *options)
        assert run.code == 4
        assert f"budget {budget}" in run.err
        assert "no plan was found before the limit" in run.err


def test_min_takes_the_smallest_peak_and_then_the_smallest_cost(reprise, net, thrifty):
    alone = reprise("plan", net, "--budget", "min", "--json").json()
    assert (alone["budget_bytes"], alone["peak_bytes"], alone["cost"]) == (None, 30, 37)
    started = reprise("plan", net, "--budget", "min", "--start", thrifty, "--json").json()
    assert (started["peak_bytes"], started["cost"]) == (30, 37)


def test_start_is_improved_on_or_kept(reprise, net, thrifty):
    answer = reprise("plan", net, "--budget", "30", "--start", thrifty, "--json").json()
    assert (answer["peak_bytes"], answer["cost"]) == (30, 37)


def test_start_has_to_be_a_right_plan_for_the_graph(reprise, net, write):
    broken = write("broken.json", plan_of(thrifty_steps()[1:]))
    run = reprise("plan", net, "--budget", "30", "--start", broken)
    assert (run.code, run.out) == (2, "")
    assert run.err == "reprise: broken.json: steps[0]: 'f2' reads 'a', which is not there\n"


def test_a_solver_that_cannot_start_from_a_plan_says_so(reprise, net, thrifty):
    run = reprise("plan", net, "--budget", "30", "--start", thrifty, "--solver", "store-last")
    assert run.code == 2
    assert "solver 'store-last' can't start from a plan" in run.err


def test_keep_holds_a_value_to_the_end(reprise, net, tmp_path):
    options = ("--keep", "c", "--solver", "store-all", "-o", "plan.json", "--json")
    answer = reprise("plan", net, "--budget", "50", *options).json()
    # c stays: while b3 runs a + b + c + gc + gb = 50. A share is still of the graph's own peak.
    assert (answer["peak_bytes"], answer["base_peak_bytes"]) == (50, 40)
    assert ["free", "c"] not in json.loads((tmp_path / "plan.json").read_text())["steps"]


def test_never_again_runs_an_op_once(reprise, net):
    options = ("--budget", "30", "--solver", "store-last", "--json")
    # f1 may not run for b2, so a waits beside b + gc + gb while b3 runs: 40.
    run = reprise("plan", net, *options, "--never-again", "f1")
    assert run.code == 4
    assert run.json()["smallest_peak_bytes"] == 40
    # Where f2 may not run for b3, b waits for it: b + c + gc = 30 at the loss. Only a comes again.
    run = reprise("plan", net, *options, "--never-again", "f2")
    assert run.code == 0
    assert run.json()["cost"] == 34 + 3


def test_keep_and_never_again_take_several_names_and_know_near_misses(reprise, write):
    graph = json.loads(json.dumps(net_graph()).replace('"gw"', '"weight.grad"'))
    name = write("net.json", graph)
    several = ("--keep", "a", "--keep", "b", "--never-again", "f1", "--never-again", "f2")
    assert reprise("plan", name, "--budget", "200%", *several).code == 0
    run = reprise("plan", name, "--budget", "100%", "--keep", "weight.gard")
    assert run.code == 2
    assert run.err == "reprise: unknown value 'weight.gard' (did you mean 'weight.grad'?)\n"
    run = reprise("plan", name, "--budget", "100%", "--never-again", "lsos")
    assert run.code == 2
    assert run.err == "reprise: unknown op 'lsos' (did you mean 'loss'?)\n"


def test_include_resident_counts_resident_bytes_in_the_budget(reprise, net):
    # The smallest peak is 30, x has 5.
    answer = reprise("plan", net, "--budget", "35", "--include-resident", "--json").json()
    assert (answer["budget_bytes"], answer["peak_bytes"], answer["resident_bytes"]) == (35, 30, 5)
    run = reprise("plan", net, "--budget", "34", "--include-resident")
    assert run.code == 3
    assert "34 B, 5 B of it for resident values, can't be met" in run.err
    assert reprise("plan", net, "--budget", "3", "--include-resident").code == 3


def test_a_written_plan_passes_check_and_claims_what_was_reported(reprise, net, tmp_path):
    for solver in ("auto", "store-all", "store-last", "store-cut-points"):
        options = ("--solver", solver, "-o", "plan.json", "--json")
        answer = reprise("plan", net, "--budget", "40", *options).json()
        plan = json.loads((tmp_path / "plan.json").read_text())
        assert (plan["graph"], plan["solver"]) == ("net", solver)
        assert (plan["peak_bytes"], plan["cost"]) == (answer["peak_bytes"], answer["cost"])
        assert reprise("check", net, "plan.json", "--budget", "40").code == 0


def test_no_plan_leaves_the_output_file_alone(reprise, net, tmp_path):
    (tmp_path / "plan.json").write_text("old")
    assert reprise("plan", net, "--budget", "29", "-o", "plan.json").code == 3
    assert (tmp_path / "plan.json").read_text() == "old"


def test_same_options_and_seed_give_the_same_bytes(reprise, net, tmp_path):
    answers = []
    for name in ("one.json", "two.json"):
        options = ("--iterations", "50", "--seed", "3", "-o", name, "--json")
        answers.append(reprise("plan", net, "--budget", "30", *options).json())
        answers[-1].pop("solve_seconds")
    assert answers[0] == answers[1]
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_the_report_has_the_same_facts(reprise, net):
    run = reprise("plan", net, "--budget", "30", "--solver", "store-last")
    assert (run.code, run.err) == (0, "")
    facts = [" ".join(line.split()) for line in run.out.splitlines()]
    assert facts[:6] == [
        "net 7 ops; plain: 40 B, 34 ns",
        "budget 30 B 75 % of the plain peak",
        "peak 30 B while f2 runs",
        "resident 5 B beside it, always there",
        "time 44 ns +29.4 %",
        "again 2 ops of 7, 1.5 times on average",
    ]
    assert "alive at the peak: 3 values, while f2 runs" in facts
    assert sum("┤" in line for line in facts) == 8
    assert any("▲" in line for line in facts)
    assert any("forward" in line and "backward" in line for line in facts)


def test_the_plan_on_standard_output_leaves_the_words_to_standard_error(reprise, net):
    for target in ("-", "/dev/stdout"):
        run = reprise("plan", net, "--budget", "30", "-o", target)
        assert run.code == 0
        assert json.loads(run.out)["format"] == "reprise-plan"
        assert "alive at the peak" in run.err
        refused = reprise("plan", net, "--budget", "30", "-o", target, "--json")
        assert (refused.code, refused.out) == (2, "")


def test_a_graph_comes_from_standard_input_too(reprise, net, tmp_path):
    content = (tmp_path / net).read_bytes()
    for path in ("-", "/dev/stdin"):
        answer = reprise("plan", path, "--budget", "100%", "--json", stdin=content).json()
        assert (answer["graph"], answer["base_peak_bytes"]) == ("net", 40)


def test_an_empty_graph_has_an_empty_plan(reprise, write):
    empty = write("empty.json", {"format": "reprise-graph", "version": 1, "values": [], "ops": []})
    answer = reprise("plan", empty, "--budget", "0", "-o", "plan.json", "--json").json()
    assert (answer["peak_bytes"], answer["cost"], answer["overhead"]) == (0, 0, None)
    assert reprise("check", empty, "plan.json").code == 0
    for verb in (("plan", empty, "--budget", "min"), ("simulate", empty)):
        assert reprise(*verb).code == 0
