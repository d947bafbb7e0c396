# SPDX-License-Identifier: Apache-2.0
"""The job of `make run`, on tiny networks."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/train.py"


def test_trains_both_networks_inside_the_budget_with_the_gradients_of_plain_training(tmp_path):
    page = tmp_path / "report.html"
    words = [sys.executable, EXAMPLE, "--small", "--steps", "3", "--budget", "70%", "--report", page]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("largest difference 0 over 3 steps") == 2
    assert done.stdout.count("the same at the end") == 2
    peaks = re.findall(r"^peak +([\d.]+) MiB +([\d.]+) MiB", done.stdout, re.MULTILINE)
    assert len(peaks) == 2 and all(float(ours) < float(plain) for plain, ours in peaks)
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html")


def test_says_which_budget_can_not_be_met(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--small", "--steps", "1", "--budget", "1%"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert re.search(r"^ResNet-20 .*: budget 1% of .* can't be met", said, re.MULTILINE), said
