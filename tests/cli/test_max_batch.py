# SPDX-License-Identifier: Apache-2.0
"""The largest batch: what scales, what counts once, and the published figure."""

import json

import pytest

from example_graphs import net_graph, write_long_chain
from running import press_ctrl_c

FIELDS = [
    "graph", "solver", "batch", "batch_bound", "plain_batch", "budget_bytes", "fixed_bytes", "peak_bytes",
    "cost", "base_cost", "overhead", "extra_cost_allowed", "batches_tried", "stopped", "solve_seconds", "seed",
]  # fmt: skip


def golden_graph(golden, name):
    """A training graph of Checkmate's, at batch 1."""
    model = golden["graphs"][name]
    reads = [[] for _ in range(model["n"])]
    for producer, consumer in model["edges"]:
        reads[consumer].append(f"v{producer}")
    phases = ["forward"] * model["n_fwd"] + ["loss"] + ["backward"] * model["n_fwd"]
    return {
        "format": "reprise-graph",
        "version": 1,
        "name": name,
        "cost_unit": "flops",
        "values": [{"name": f"v{i}", "bytes": size} for i, size in enumerate(model["ram"])],
        "ops": [
            {"name": f"v{i}", "phase": phase, "cost": cost, "inputs": reads[i], "outputs": [f"v{i}"]}
            for i, (phase, cost) in enumerate(zip(phases, model["cpu"], strict=True))
        ],
    }


def test_plain_and_thrifty_batches(reprise, net):
    # Plain: 40 B a batch at the loss, where gw (5 B, kept) is not there yet. Store-last: 30 B.
    words = ("--budget", "1000", "--solver", "store-last", "--json")
    run = reprise("max-batch", net, *words)
    answer = run.json()
    assert (run.code, run.err) == (0, "")
    assert list(answer) == FIELDS
    assert (answer["batch"], answer["batch_bound"], answer["plain_batch"]) == (33, 33, 25)
    # One more forward pass costs 3 + 4 + 5 = 12; store-last costs 44 - 34 = 10.
    assert (answer["cost"], answer["base_cost"], answer["extra_cost_allowed"]) == (44 * 33, 34 * 33, 12)
    assert answer["peak_bytes"] == 990
    for extra, batch in (("10", 33), ("9", 25), ("30%", 33), ("29%", 25), ("any", 33), ("0", 25)):
        assert reprise("max-batch", net, *words, "--extra-cost", extra).json()["batch"] == batch, extra


def test_fixed_bytes_count_once(reprise, net):
    words = ("max-batch", net, "--budget", "1000", "--solver", "store-all", "--json")
    assert reprise(*words, "--fixed", "200").json()["batch"] == 20
    assert reprise(*words, "--fixed", "40").json()["batch"] == 24
    answer = reprise(*words, "--include-resident").json()  # x: 5 B
    assert (answer["batch"], answer["fixed_bytes"]) == (24, 5)


def test_kept_and_resident_values_do_not_grow(reprise, write):
    graph = net_graph()
    graph["values"][-1]["bytes"] = 500  # gw, with ga only
    graph["values"][0]["bytes"] = 10**6  # x, resident
    answer = reprise("max-batch", write("big.json", graph), "--budget", "1000", "--json").json()
    assert (answer["plain_batch"], answer["batch_bound"]) == (25, 33)


def test_workspace_grows(reprise, write):
    graph = net_graph()
    graph["ops"][3]["workspace"] = 60  # the loss: 40 + 60 B
    answer = reprise("max-batch", write("work.json", graph), "--budget", "1000", "--json").json()
    assert answer["plain_batch"] == 10


def test_words_show_the_batch_and_the_bound(reprise, net):
    run = reprise("max-batch", net, "--budget", "1000", "--solver", "store-all", "--fixed", "100")
    assert run.out == (
        "net   7 ops; plain: 40 B, 34 ns\n"
        "batch            22   no plan fits more than 30 (proven)\n"
        "plain            22   the largest without computing again\n"
        "budget       1000 B   100 B of it fixed\n"
        "peak          880 B\n"
        "time         748 ns   0 %; at most +35.3 % was asked for\n"
    )


def test_the_plan_is_for_the_graph_at_that_batch(reprise, net):
    words = ("max-batch", net, "--budget", "1000", "--solver", "store-last", "-o", "plan.json", "--json")
    batch = reprise(*words).json()["batch"]
    assert reprise("convert", net, "--batch", str(batch), "-o", "large.json").code == 0
    checked = reprise("check", "large.json", "plan.json", "--budget", "1000", "--json").json()
    assert (checked["right"], checked["peak_bytes"], checked["cost"]) == (True, 990, 44 * 33)


def test_no_batch_is_exit_3_where_proven_and_4_where_not(reprise, net):
    run = reprise("max-batch", net, "--budget", "100", "--fixed", "71", "--json")
    assert run.code == 3
    assert run.err == "reprise: no batch fits 100 B, 71 B of it fixed (proven)\n"
    assert (run.json()["batch"], run.json()["peak_bytes"]) == (0, None)
    assert reprise("max-batch", net, "--budget", "100", "--fixed", "1GB").code == 3
    run = reprise("max-batch", net, "--budget", "35", "--solver", "store-all")
    assert (run.code, run.out) == (4, "")
    assert run.err == "reprise: no batch fits 35 B, 0 B of it fixed; no plan fits more than 1 (proven)\n"


def test_without_phases_the_extra_cost_has_to_be_said(reprise, write):
    graph = net_graph()
    for op in graph["ops"]:
        del op["phase"]
    words = ("max-batch", write("bare.json", graph), "--budget", "1000", "--solver", "store-all")
    run = reprise(*words)
    assert (run.code, run.out) == (2, "")
    assert "no phases" in run.err
    assert reprise(*words, "--extra-cost", "20%").code == 0


# Checkmate's figure 6 for VGG19: 16e9 bytes, at most one more forward pass, and parameters with their
# gradients counted once. Counted twice, as its baselines do, it is 266.
@pytest.mark.parametrize("solver", ["auto", "chen-greedy", "lower-set", "ogc", "checkmate-ilp"])
def test_vgg19_reaches_the_published_289(reprise, write, shared, solver):
    golden = json.loads((shared / "golden/checkmate.json").read_text())
    fixed = golden["graphs"]["VGG19"]["fixed_bytes"]
    name = write("vgg19.json", golden_graph(golden, "VGG19"))
    words = ("max-batch", name, "--budget", "16GB", "--solver", solver, "--json")
    answer = reprise(*words, "--fixed", str(fixed)).json()
    assert (answer["batch"], answer["batch_bound"]) == (289, 289)
    assert 0 < answer["overhead"] < 1 / 3
    assert reprise(*words, "--fixed", str(2 * fixed)).json()["batch"] == 266


def test_resnet50_is_past_what_was_published(reprise, write, shared):
    golden = json.loads((shared / "golden/checkmate.json").read_text())
    fixed = golden["graphs"]["ResNet50"]["fixed_bytes"]
    name = write("resnet50.json", golden_graph(golden, "ResNet50"))
    words = ("max-batch", name, "--budget", "16GB", "--fixed", str(fixed), "--time-limit", "500ms", "--json")
    answer = reprise(*words).json()
    assert answer["batch_bound"] == golden["baselines"]["ResNet50"]["upper"] == 1093
    assert answer["batch"] >= 248  # the best of the baselines; the integer program had 193


def test_ctrl_c_gives_the_best_so_far(terminal, tmp_path):
    write_long_chain(tmp_path / "chain.json", 5_000)
    words = ("max-batch", "chain.json", "--budget", "1GB", "--solver", "store-last", "--time-limit", "1h")
    run = terminal(*words, "-o", "plan.json", "--json", streams=["stderr"], watch=press_ctrl_c("store-last: op"))
    answer = json.loads(run.out)
    assert run.code == 0
    assert answer["stopped"] is True
    assert answer["batch"] == answer["plain_batch"] > 0
    last = run.err.rsplit("\r\x1b[K", 1)[1]
    assert last == "reprise: max-batch was stopped before it was through: this is its best so far\n"
    assert json.loads((tmp_path / "plan.json").read_text())["peak_bytes"] == answer["peak_bytes"]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("net.json",),
        ("net.json", "--budget", "min"),
        ("net.json", "--budget", "50%"),
        ("net.json", "--budget", "many"),
        ("net.json", "--budget", "1GB", "--fixed", "10%"),
        ("net.json", "--budget", "1GB", "--fixed", "-1"),
        ("net.json", "--budget", "1GB", "--extra-cost", "-1"),
        ("net.json", "--budget", "1GB", "--extra-cost", "backward"),
        ("net.json", "--budget", "1GB", "--extra-cost", "nan"),
        ("net.json", "--budget", "1GB", "--extra-cost", ""),
        ("net.json", "--budget", "1GB", "--solver", "atuo"),
        ("net.json", "--budget", "1GB", "--json", "-o", "-"),
        ("missing.json", "--budget", "1GB"),
        ("still.json", "--budget", "1GB"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2_and_one_sentence(reprise, net, write, words):
    still = net_graph()
    for value in still["values"]:
        value["keep"] = not value.get("resident", False)
    write("still.json", still)
    run = reprise("max-batch", *words)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise") and run.err.count("\n") == 1


def test_convert_refuses_a_batch_that_is_none_or_past_64_bits(reprise, net, write):
    dear = net_graph()
    dear["ops"][0]["cost"] = 2**40
    for graph, batch in ((net, "0"), (net, "-3"), (net, "many"), (write("dear.json", dear), str(2**30))):
        run = reprise("convert", graph, "--batch", batch)
        assert (run.code, run.out) == (2, ""), batch
        assert run.err.startswith("reprise") and run.err.count("\n") == 1
