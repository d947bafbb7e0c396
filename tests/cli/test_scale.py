# SPDX-License-Identifier: Apache-2.0
"""Large graphs: what they take, and how good plans are on them."""

import json
import subprocess
import sys

import pytest

from example_graphs import write_long_chain
from running import ROOT

MIB = 1 << 20


# A process begins with the memory of the one that starts it: one that is small.
MEASURE = """import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)"""


@pytest.fixture
def run(release_program, tmp_path):
    """Runs the program, at full speed, and gives what it writes and how much memory it took."""

    def run(*words):
        command = [sys.executable, "-c", MEASURE, release_program, *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True, check=True)
        *lines, kibibytes = done.stdout.splitlines()
        return "\n".join(lines), int(kibibytes) * 1024

    return run


# 2 · layers + 1 ops.
LARGEST = pytest.param(500_000, 4096 * MIB, marks=pytest.mark.long)


@pytest.mark.parametrize("layers, limit", [(50_000, 410 * MIB), LARGEST])
def test_ops_take_less_than_4_kib_each(run, tmp_path, layers, limit):
    write_long_chain(tmp_path / "chain.json", layers)
    options = ("--solver", "store-all", "--budget", "100%", "-o", "plan.json", "--json")
    text, memory = run("plan", "chain.json", *options)
    assert memory < limit
    answer = json.loads(text)
    assert answer["ops"] == 2 * layers + 1
    # At the loss every value of the forward pass is there, and one gradient.
    assert answer["peak_bytes"] == 8 * (layers + 1)
    assert answer["cost"] == 2 * layers + 1

    text, memory = run("check", "chain.json", "plan.json")
    assert memory < limit and text.startswith("right: ")
    text, memory = run("simulate", "chain.json", "plan.json", "--json")
    assert memory < limit
    replay = json.loads(text)
    assert (replay["peak_bytes"], replay["cost"]) == (answer["peak_bytes"], answer["cost"])


@pytest.fixture
def transformer(run, tmp_path):
    """Writes a training step of a transformer with so many layers of 16 heads."""

    def write(layers):
        script = ROOT / "benchmarks/transformer.py"
        subprocess.run([sys.executable, script, str(layers), "16", tmp_path / "forward.json"], check=True)
        run("convert", "forward.json", "--training", "-o", "transformer.json")
        return "transformer.json"

    return write


# Start plans alone are nearly as good as can be: no move is needed, and no clock.
AT_ONCE = ("--iterations", "1", "--without", "published", "--json")


@pytest.mark.parametrize("share", [60, 40, 25])
def test_ten_thousand_ops_are_planned_to_the_proven_best(run, transformer, share):
    text, _ = run("plan", transformer(48), "--budget", f"{share}%", *AT_ONCE)
    answer = json.loads(text)
    assert answer["ops"] > 10_000
    proven = answer["lower_bound"] / answer["base_cost"] - 1
    assert answer["overhead"] < 1.01 * proven


# What grows with their square would be over: with a bit for each pair, 20,000 ops have 50 MB, 100,000 more than 1 GB.
@pytest.mark.parametrize("layers, limit", [(96, 100 * MIB), pytest.param(480, 1024 * MIB, marks=pytest.mark.long)])
def test_ops_take_memory_by_their_number(run, transformer, layers, limit):
    text, memory = run("plan", transformer(layers), "--budget", "25%", *AT_ONCE)
    answer = json.loads(text)
    assert answer["ops"] > 200 * layers
    assert answer["overhead"] < 1.01 * (answer["lower_bound"] / answer["base_cost"] - 1)
    assert memory < limit


# Blocks that repeat are solved once: without them no plan of this graph fits so little.
def test_a_long_network_fits_a_small_part_of_its_memory(run, transformer):
    words = ("--without", "light", "--without", "cut-bound")  # which take long, and add nothing here
    text, _ = run("plan", transformer(48), "--budget", "3%", *words, *AT_ONCE)
    assert json.loads(text)["overhead"] < 0.45
