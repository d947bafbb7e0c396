# SPDX-License-Identifier: Apache-2.0
from example_graphs import net_graph, plan_of, thrifty_steps


def test_it_says_where_plans_part_and_what_they_run(reprise, net, thrifty):
    options = ("--solver", "store-last", "-o", "last.json")
    assert reprise("plan", net, "--budget", "30", *options).code == 0
    run = reprise("diff", "last.json", thrifty)
    assert (run.code, run.err) == (0, "")
    lines = [" ".join(line.split()) for line in run.out.splitlines()]
    assert lines == [
        "last.json thrifty.json",
        "solver store-last not said",
        "steps 19 15",
        "computes 10 8",
        "peak 30 B 30 B",
        "cost 44 37",
        "they part at steps[4]: free b | compute loss",
        "runs, where they differ:",
        "3 → 2 f1",
        "2 → 1 f2",
        "frees, where they differ:",
        "3 → 2 a",
        "2 → 1 b",
    ]
    assert reprise("diff", "last.json", thrifty, "--json").json() == {
        "same": False,
        "a": {
            "file": "last.json",
            "solver": "store-last",
            "steps": 19,
            "computes": 10,
            "peak_bytes": 30,
            "cost": 44,
        },
        "b": {
            "file": "thrifty.json",
            "solver": None,
            "steps": 15,
            "computes": 8,
            "peak_bytes": 30,
            "cost": 37,
        },
        "first_difference": 4,
        "runs": {"f1": [3, 2], "f2": [2, 1]},
        "frees": {"a": [3, 2], "b": [2, 1]},
    }


def test_a_plan_is_the_same_as_itself(reprise, thrifty):
    assert reprise("diff", thrifty, thrifty).out.endswith("the same steps\n")
    answer = reprise("diff", thrifty, thrifty, "--json").json()
    assert answer["same"] is True
    assert (answer["first_difference"], answer["runs"], answer["frees"]) == (None, {}, {})


def test_another_order_is_called_that(reprise, thrifty, write):
    steps = thrifty_steps()
    steps[7], steps[8] = steps[8], steps[7]
    run = reprise("diff", thrifty, write("other.json", plan_of(steps)))
    assert "they part at steps[7]: free b | free gc" in run.out
    assert run.out.endswith("the same computes and frees, in another order\n")


def test_a_shorter_plan_ends_where_the_other_goes_on(reprise, thrifty, write):
    run = reprise("diff", thrifty, write("short.json", plan_of(thrifty_steps()[:14])))
    assert "they part at steps[14]: free ga | the end" in run.out


def test_one_plan_comes_from_standard_input(reprise, thrifty, tmp_path):
    content = (tmp_path / thrifty).read_bytes()
    assert reprise("diff", thrifty, "-", "--json", stdin=content).json()["same"] is True


def test_plans_of_different_graphs_are_refused(reprise, net, write):
    other = net_graph()
    other["values"][1]["bytes"] = 11
    for graph, plan in ((net, "one.json"), (write("other.json", other), "two.json")):
        assert reprise("plan", graph, "--budget", "100%", "-o", plan).code == 0
    run = reprise("diff", "one.json", "two.json")
    assert (run.code, run.out) == (2, "")
    assert "one.json and two.json are plans of different graphs" in run.err
