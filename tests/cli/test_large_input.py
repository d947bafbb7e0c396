# SPDX-License-Identifier: Apache-2.0
"""Inputs that are large or deep on purpose: each gets its sentence, none takes the machine down."""

import subprocess

import pytest

from running import HANG, Run

MIB = 1 << 20
DEEP = 100_000
GRAPH = b'{"format": "reprise-graph", "version": 1, '


@pytest.fixture
def feed(program, tmp_path):
    """Streams pieces into standard input."""

    def run(pieces, *words):
        process = subprocess.Popen(
            [program, *(words or ("convert", "-"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
        try:
            for piece in pieces:
                process.stdin.write(piece)
        except BrokenPipeError:  # it has read enough
            pass
        out, err = process.communicate(timeout=HANG)
        return Run(process.returncode, out.decode(), err.decode())

    return run


def assert_refused(run, message):
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise: <stdin>:") and message in run.err, run.err[:500]
    assert run.err.count("\n") == 1
    assert len(run.err) < 500


@pytest.mark.parametrize(
    "start, nested",
    [
        pytest.param(b"", b"[", id="arrays"),
        pytest.param(b"", b'{"a":', id="objects"),
        pytest.param(b"", b'[{"a":', id="both"),
        pytest.param(GRAPH + b'"name": ', b"[", id="graph"),
        pytest.param(b'{"nodes": ', b"[", id="node-link"),
    ],
)
def test_json_nested_100000_deep(feed, start, nested):
    assert_refused(feed([start, nested * DEEP]), ": JSON nested deeper than 64 levels")


def test_a_plan_nested_100000_deep(feed, net):
    plan = b'{"format": "reprise-plan", "version": 1, "steps": '
    run = feed([plan, b"[" * DEEP], "check", net, "-")
    assert_refused(run, ": JSON nested deeper than 64 levels")


def test_attributes_nested_100000_deep(feed):
    head = b'1 2\n0 4 _\nforward\n0 1\n0\nInput\n{"axis": '
    assert_refused(feed([head, b"[" * DEEP, b"\n"]), "JSON nested deeper than 64 levels")


@pytest.mark.parametrize("mebibytes", [128, pytest.param(1024, marks=pytest.mark.long)])
def test_nothing_but_spaces(feed, mebibytes):
    assert_refused(feed([b" " * MIB] * mebibytes), ": the input is empty")


def test_many_blank_lines_count_as_lines(feed):
    lines = [b"\r\n" * 1000] * 1000
    assert_refused(feed(lines), ": the input is empty")
    assert_refused(feed([*lines, b"{\n]"]), ":1000002:1: syntax error")
    assert_refused(feed([*lines, b"1 1\n"]), ":1000001: 1 functions")


def test_a_sparse_file_of_nothing(reprise, tmp_path):
    with open(tmp_path / "holes.json", "wb") as file:
        file.truncate(128 * MIB)
    run = reprise("convert", "holes.json")
    assert (run.code, run.out) == (2, "")
    assert run.err == "reprise: holes.json:1: neither JSON nor lower-set text\n"


def test_a_brace_and_many_spaces(feed):
    run = feed([b"{"] + [b" " * MIB] * 10)
    assert_refused(run, f":1:{10 * MIB + 2}: syntax error")


def test_a_string_of_10_megabytes_that_never_ends(feed):
    assert_refused(feed([b'{"format": "', b"a" * (10 * MIB)]), ":1:")


def test_a_name_of_10_megabytes_is_cut_in_messages(feed):
    value = b'"values": [{"name": "' + b"n" * (10 * MIB) + b'", "bytes": 8}], "ops": []}'
    run = feed([GRAPH, value])
    assert_refused(run, ": values[0]: value 'nnnn")
    assert "no op makes it" in run.err


def test_a_number_of_10_megabytes(feed):
    assert_refused(feed([GRAPH, b'"values": ', b"1" * (10 * MIB), b"}"]), ":1:")
    assert_refused(feed([b"1" * (10 * MIB), b" 2\n"]), ":1: 1111")


def test_a_line_of_10_megabytes(feed):
    words = b"word " * (2 * MIB)
    assert_refused(feed([words, b"\n"]), ": neither JSON nor lower-set text")
    assert_refused(feed([b"1 2\n0 4 _\n", words, b"\n"]), ":3: 'word word")
    assert feed([b"1 0\n0 4 ", b"n" * (10 * MIB), b"\n"]).code == 0


@pytest.mark.parametrize(
    "text, message",
    [
        (b"9223372036854775807 2\n", ":2: the file ends where a variable should be"),
        (b"0 9223372036854775806\n", ":2: the file ends where a forward function should be"),
        (b"0 2\nforward\n9223372036854775807 1\n", ":4: the file ends where an input should be"),
        (b"0 2\nforward\n0 9223372036854775807\n", ":4: the file ends where an output should be"),
    ],
)
def test_a_huge_count_takes_no_memory(feed, text, message):
    assert_refused(feed([text]), message)


def test_an_object_of_100000_keys_and_one_twice(feed):
    keys = b",".join(b'"k%d":0' % i for i in range(100_000))
    assert_refused(feed([b"{", keys, b',"k7":1}']), ": k7: the key is there twice")


def test_a_long_cycle_is_named_by_its_ends(feed):
    count = 100_000
    nodes = ",".join('{"id":%d,"cost_cpu":1,"cost_ram":1}' % i for i in range(count))
    links = ",".join('{"source":%d,"target":%d}' % (i, (i + 1) % count) for i in range(count))
    run = feed([('{"nodes":[%s],"links":[%s]}' % (nodes, links)).encode()])
    assert_refused(run, ": the links form a cycle: '0' → '1' → ")
