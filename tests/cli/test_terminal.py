# SPDX-License-Identifier: Apache-2.0
"""Colours, progress and Ctrl-C: what only a terminal shows."""

import json
import re

import pytest

from example_graphs import write_long_chain
from running import press_ctrl_c

ESCAPE = "\x1b"
REPORTS = [
    ("plan", "net.json", "--budget", "30"),
    ("simulate", "net.json", "thrifty.json"),
]
BEST_SO_FAR = "reprise: auto was stopped before it was through: this is its best so far"
LONG = ("--solver", "store-last", "--time-limit", "1h")
WITHOUT_END = ("--without", "cut-bound", "--time-limit", "1h")  # nothing proves that the best plan is that


@pytest.fixture
def chain(tmp_path):
    """10,001 ops. Store-last runs 12 million, which takes it seconds."""
    write_long_chain(tmp_path / "chain.json", 5_000)
    return "chain.json"


@pytest.fixture
def short_chain(tmp_path):
    write_long_chain(tmp_path / "chain.json", 100)
    return "chain.json"


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("words", REPORTS, ids=lambda words: words[0])
def test_a_terminal_gets_colours_and_the_same_text(reprise, terminal, net, thrifty, words):
    coloured = terminal(*words, streams=["stdout"])
    assert (coloured.code, coloured.err) == (0, "")
    assert ESCAPE + "[" in coloured.out
    assert plain(coloured.out) == reprise(*words).out


@pytest.mark.parametrize("words", REPORTS, ids=lambda words: words[0])
def test_colours_vanish_without_a_terminal_with_no_color_and_on_a_dumb_one(
    reprise, terminal, net, thrifty, words
):
    assert ESCAPE not in reprise(*words).out
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        run = terminal(*words, streams=["stdout"], env=env)
        assert run.code == 0
        assert ESCAPE not in run.out
    assert ESCAPE in terminal(*words, streams=["stdout"], env={"NO_COLOR": ""}).out


def test_words_sent_to_a_file_have_no_colours_though_the_plan_is_on_a_terminal(terminal, net):
    run = terminal("plan", net, "--budget", "30", "-o", "-", streams=["stdout"])
    assert '"reprise-plan"' in run.out
    assert "alive at the peak" in run.err and ESCAPE not in run.err


def test_json_has_no_colours_on_a_terminal(terminal, net):
    run = terminal("plan", net, "--budget", "30", "--json", streams=["stdout"])
    assert json.loads(run.out)["cost"] == 37


def test_errors_have_no_escape_codes(terminal, net):
    for words in (("paln",), ("plan", net, "--budget", "29"), ("simulate", "missing.json")):
        assert ESCAPE not in terminal(*words).err


def test_short_work_shows_no_progress(terminal, net):
    assert terminal("plan", net, "--budget", "30", streams=["stderr"]).err == ""


def test_long_work_shows_progress_on_a_terminal_only(reprise, terminal, chain):
    words = ("plan", chain, "--budget", "50%", "--solver", "store-last", "--time-limit")
    seen = terminal(*words, "1h", streams=["stderr"], watch=press_ctrl_c("Ctrl-C"))
    assert seen.code == 4
    assert re.search(r"store-last: op \d+ of 10001, \d+\.\d s \(Ctrl-C ends with", seen.err)

    words = (*words, "600ms")
    for unseen in (reprise(*words), terminal(*words, streams=["stderr"], env={"TERM": "dumb"})):
        assert unseen.code == 4
        assert unseen.err.startswith("reprise: budget ") and unseen.err.count("\n") == 1


def test_progress_is_gone_before_anything_else_is_written(terminal, short_chain):
    run = terminal("plan", short_chain, "--budget", "50%", *WITHOUT_END, watch=press_ctrl_c("Ctrl-C"))
    assert run.code == 0
    progress, report = run.out.rsplit("\r\x1b[K", 1)
    assert "Ctrl-C" in progress
    stopped, first, *_ = plain(report).splitlines()
    assert stopped == BEST_SO_FAR
    assert first.startswith("chain   201 ops")


def test_ctrl_c_before_any_plan_is_exit_4_and_leaves_files_alone(terminal, chain, tmp_path):
    (tmp_path / "plan.json").write_text("old")
    words = ("plan", chain, "--budget", "50%", *LONG, "-o", "plan.json", "--json")
    run = terminal(*words, streams=["stderr"], watch=press_ctrl_c("Ctrl-C"))
    assert run.code == 4
    assert json.loads(run.out)["status"] == "limit"
    last = run.err.rsplit("\r\x1b[K", 1)[1]
    assert last.startswith("reprise: budget ") and last.count("\n") == 1
    assert "no plan was found before the limit" in last
    assert (tmp_path / "plan.json").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.json", "plan.json"]


def test_ctrl_c_with_a_plan_in_hand_writes_it_whole(reprise, terminal, short_chain, tmp_path):
    (tmp_path / "plan.json").write_text("old")
    words = ("plan", short_chain, "--budget", "50%", *WITHOUT_END, "-o", "plan.json", "--json")
    run = terminal(*words, streams=["stderr"], watch=press_ctrl_c("Ctrl-C"))
    assert run.code == 0
    assert run.err.endswith(f"\r\x1b[K{BEST_SO_FAR}\n")
    answer = json.loads(run.out)
    assert answer["peak_bytes"] <= answer["budget_bytes"]
    assert reprise("check", short_chain, "plan.json", "--budget", "50%").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.json", "plan.json"]
