# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from example_graphs import net_graph

LOWER_SET = """\
6 6
0 64 0
1 16 1
2 40 /net/a/W
3 100 _
4 100 _
5 4 _
forward
2 1
0 _
2 _
3
Convolution2DFunction
{"_input_indexes_to_retain": [0, 1], "_output_indexes_to_retain": null, "rank": 0}
forward
1 1
3 _
4
ReLU
{"_input_indexes_to_retain": null, "_output_indexes_to_retain": [0], "rank": 1}
forward
2 1
4 _
1 _
5
SoftmaxCrossEntropy
{"_input_indexes_to_retain": [0, 1], "_output_indexes_to_retain": null, "rank": 2}
backward
3 2
3 gradient
0 input
2 input
0
2
Convolution2DFunction
{}
backward
2 1
4 gradient
4 output
3
ReLU
{}
backward
3 2
5 gradient
4 input
1 input
4
1
SoftmaxCrossEntropy
{}
"""


def node_link(**more):
    """a → b → c, where c also reads a. Plain: a + b + c = 60, cost 12."""
    return {
        "directed": True,
        "graph": {"name": "three", **more},
        "nodes": [
            {"id": 7, "name": "a", "cost_cpu": 3, "cost_ram": 10},
            {"id": 8, "name": "b", "cost_cpu": 4, "cost_ram": 20},
            {"id": 9, "name": "c", "cost_cpu": 5, "cost_ram": 30},
        ],
        "links": [
            {"source": 7, "target": 8},
            {"source": 8, "target": 9},
            {"source": 7, "target": 9},
        ],
    }


def other_spelling():
    return {
        "directed": True,
        "graph": {},
        "nodes": [{"name": i, "duration": 1, "out_cost": 10 * (i + 1)} for i in range(3)],
        "links": [{"0": 0, "1": 1}, {"0": 1, "1": 2}],
    }


def base_of(reprise, *graph, **options):
    answer = reprise("simulate", *graph, "--json", **options).json()
    return answer["base_peak_bytes"], answer["base_cost"]


def test_a_graph_survives_the_way_through_its_own_format(reprise, net, tmp_path):
    first = reprise("convert", net, "-o", "one.json", "--json").json()
    second = reprise("convert", "one.json", "-o", "two.json", "--json").json()
    assert first == {
        "graph": "net",
        "ops": 7,
        "values": 8,
        "fingerprint": second["fingerprint"],
        "to": "reprise-graph",
        "output": "one.json",
    }
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert json.loads((tmp_path / "one.json").read_text()) == net_graph()


def test_standard_output_is_the_default_and_takes_no_json_beside_it(reprise, net):
    assert json.loads(reprise("convert", net).out) == net_graph()
    run = reprise("convert", net, "--json")
    assert (run.code, run.out) == (2, "")
    assert run.err == "reprise: --json needs --output: standard output can't take both\n"


def test_every_format_is_told_by_its_content(reprise, net, write, tmp_path):
    (tmp_path / "lower_set.txt").write_text(LOWER_SET)
    assert base_of(reprise, net) == (40, 34)
    assert base_of(reprise, write("node_link.json", node_link())) == (60, 12)
    assert base_of(reprise, write("other_spelling.json", other_spelling())) == (50, 3)
    # ReLU's backward has v4, g4 and g3, 100 each; v3 is gone, for it reads the output.
    assert base_of(reprise, "lower_set.txt") == (300, 12)


@pytest.mark.parametrize("form", ["reprise-graph", "node-link", "lower-set"])
def test_format_overrides_the_content(reprise, net, write, tmp_path, form):
    (tmp_path / "graph.txt").write_text(LOWER_SET)
    files = {
        "reprise-graph": net,
        "node-link": write("node_link.json", node_link()),
        "lower-set": "graph.txt",
    }
    for other, file in files.items():
        assert reprise("simulate", file, "--format", form).code == (0 if form == other else 2)


def test_dot_is_written_only(reprise, net, tmp_path):
    run = reprise("convert", net, "--to", "dot")
    assert run.code == 0
    assert run.out.startswith('digraph "net" {') and run.out.endswith("}\n")
    (tmp_path / "net.dot").write_text(run.out)
    assert reprise("simulate", "net.dot").code == 2
    run = reprise("simulate", "net.dot", "--format", "dot")
    assert run.code == 2 and "'dot' is none of {reprise-graph,node-link,lower-set}" in run.err


def test_node_link_and_back_keeps_peak_cost_and_order(reprise, write):
    name = write("three.json", node_link(order=[7, 8, 9]))
    assert reprise("convert", name, "--to", "node-link", "-o", "back.json").code == 0
    assert base_of(reprise, "back.json") == base_of(reprise, name) == (60, 12)


def test_lower_set_text_and_back_keeps_the_peak(reprise, tmp_path):
    (tmp_path / "net.txt").write_text(LOWER_SET)
    assert reprise("convert", "net.txt", "--to", "lower-set", "-o", "back.txt").code == 0
    assert base_of(reprise, "back.txt")[0] == base_of(reprise, "net.txt")[0]


def test_lower_set_options_say_what_backward_reads_and_which_gradients_count(reprise, tmp_path):
    retained = '"_output_indexes_to_retain": '
    (tmp_path / "net.txt").write_text(LOWER_SET.replace(retained + "[0]", retained + "null"))
    assert base_of(reprise, "net.txt") == (300, 12)
    # ReLU retains nothing: its backward has g4 and g3.
    assert base_of(reprise, "net.txt", "--reads", "retained") == (200, 12)
    # The gradient of variable 1, 16 B, stays from the loss's backward on.
    assert base_of(reprise, "net.txt", "--source-gradients") == (316, 12)


def test_what_a_format_cannot_say_is_refused(reprise, net):
    run = reprise("convert", net, "--to", "node-link", "-o", "net2.json")
    assert (run.code, run.out) == (2, "")
    assert run.err == "reprise: node-link JSON can't say that 'gw' is kept\n"


def test_training_adds_a_loss_and_a_backward_pass(reprise, write):
    name = write("three.json", node_link())
    answer = reprise("convert", name, "--training", "-o", "step.json", "--json").json()
    assert answer["ops"] == 7  # three forward, a loss, three backward
    assert reprise("plan", "step.json", "--budget", "100%", "--solver", "store-last").code == 0
    run = reprise("convert", "step.json", "--training")
    assert (run.code, run.out) == (2, "")


@pytest.mark.parametrize("file", ["net.json", "three.json", "graph.txt"])
def test_marks_line_ends_and_blanks_change_nothing(reprise, net, write, tmp_path, file):
    write("three.json", node_link())
    (tmp_path / "graph.txt").write_text(LOWER_SET)
    content = (tmp_path / file).read_bytes()
    plain = reprise("convert", "-", stdin=content)
    assert plain.code == 0
    crlf = content.replace(b"\n", b"\r\n")
    for changed in (b"\xef\xbb\xbf" + content, crlf, b"\r\n \t\n" + crlf, content.rstrip(b"\n")):
        assert reprise("convert", "-", stdin=changed) == plain


def test_names_of_any_language_pass_through(reprise, net, tmp_path):
    content = (tmp_path / net).read_text().replace('"gw"', '"∂w — градиент 勾配"')
    run = reprise("convert", "-", stdin=content.encode())
    assert run.code == 0
    assert '"∂w — градиент 勾配"' in run.out
    assert reprise("plan", "-", "--budget", "100%", stdin=content.encode()).code == 0
