# SPDX-License-Identifier: Apache-2.0
from example_graphs import net_graph

NAMES = {
    "auto", "store-all", "store-last", "store-cut-points", "checkmate-ilp", "checkmate-lp", "checkmate-lp-random",
}  # fmt: skip


def lacks_highs(solver):
    """Whether it is not there only because this build has no HiGHS."""
    return "needs HiGHS" in (solver["reason"] or "")


def test_every_solver_is_listed_with_a_summary(reprise):
    run = reprise("solvers")
    assert (run.code, run.err) == (0, "")
    assert {line.split()[0] for line in run.out.splitlines()} >= NAMES
    answer = reprise("solvers", "--json").json()
    assert {solver["name"] for solver in answer} >= NAMES
    assert all(solver["summary"] for solver in answer)


def test_a_graph_without_phases_names_what_does_not_support_it_and_why(reprise, write):
    graph = net_graph()
    for op in graph["ops"]:
        del op["phase"]
    name = write("bare.json", graph)
    supports = {solver["name"]: solver for solver in reprise("solvers", name, "--json").json()}
    assert supports["auto"]["supports"] is True
    assert supports["store-all"]["reason"] is None
    assert supports["store-last"]["supports"] is False
    assert supports["store-last"]["reason"].startswith("needs phases")
    assert "not for this graph: needs phases" in reprise("solvers", name).out

    run = reprise("plan", name, "--budget", "100%", "--solver", "store-last")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise: solver 'store-last' needs phases")


def test_a_graph_with_phases_is_for_all(reprise, net):
    answer = reprise("solvers", net, "--json").json()
    assert all(solver["supports"] or lacks_highs(solver) for solver in answer)


def test_every_listed_solver_runs(reprise, net):
    for solver in reprise("solvers", net, "--json").json():
        if lacks_highs(solver):
            run = reprise("plan", net, "--budget", "100%", "--solver", solver["name"])
            assert (run.code, run.out) == (2, "")
            assert "needs HiGHS" in run.err
            continue
        run = reprise("plan", net, "--budget", "100%", "--solver", solver["name"], "--json")
        assert run.code == 0
        assert run.json()["solver"] == solver["name"]
