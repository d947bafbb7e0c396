# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess

from example_graphs import write_long_chain

LAYERS = 500_000  # and as many backward ops, and a loss
GIB = 1 << 30


def test_a_million_ops_fit_into_4_gib(release_program, tmp_path):
    write_long_chain(tmp_path / "chain.json", LAYERS)

    def run(*words):
        with open(tmp_path / "out.txt", "w+") as out:
            process = subprocess.Popen(
                [release_program, *words], stdin=subprocess.DEVNULL, stdout=out, cwd=tmp_path
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            assert usage.ru_maxrss * 1024 < 4 * GIB
            out.seek(0)
            return out.read()

    options = ("--solver", "store-all", "--budget", "100%", "-o", "plan.json", "--json")
    answer = json.loads(run("plan", "chain.json", *options))
    assert answer["ops"] == 2 * LAYERS + 1
    # At the loss every value of the forward pass is there, and one gradient.
    assert answer["peak_bytes"] == 8 * (LAYERS + 1)
    assert answer["cost"] == 2 * LAYERS + 1

    assert run("check", "chain.json", "plan.json").startswith("right: ")
    replay = json.loads(run("simulate", "chain.json", "plan.json", "--json"))
    assert (replay["peak_bytes"], replay["cost"]) == (answer["peak_bytes"], answer["cost"])
