# SPDX-License-Identifier: Apache-2.0
"""What the command-line tests share: the program, and graphs to feed it."""

import json
import os
import pty
import subprocess
import threading

import pytest

from example_graphs import net_graph, plan_of, thrifty_steps
from running import HANG, ROOT, Run, environment


@pytest.fixture(scope="session")
def program():
    path = ROOT / os.environ.get("REPRISE_PROGRAM", "build/dev/cli/reprise")
    assert path.is_file(), f"no program at {path}: scripts/build dev reprise_program"
    return path


@pytest.fixture(scope="session")
def release_program():
    path = ROOT / "build/bin/reprise"
    assert path.is_file(), f"no program at {path}: make build"
    return path


@pytest.fixture
def reprise(program, tmp_path):
    """Runs the program in tmp_path, with nothing on standard input and no terminal."""

    def run(*args, stdin=b"", cwd=tmp_path, env=None):
        done = subprocess.run(
            [program, *args],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=environment(env),
            timeout=HANG,
        )
        return Run(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def terminal(program, tmp_path):
    """Runs the program with some of its streams on a terminal.

    What the terminal shows is the Run's text for each of these; `watch` sees it grow.
    """

    def run(*args, streams=("stdout", "stderr"), env=None, watch=lambda shown, process: None):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [program, *args],
            stdin=subprocess.DEVNULL,
            stdout=slave if "stdout" in streams else subprocess.PIPE,
            stderr=slave if "stderr" in streams else subprocess.PIPE,
            cwd=tmp_path,
            env=environment(env),
        )
        os.close(slave)
        hung = threading.Timer(HANG, process.kill)
        hung.start()
        received, shown = b"", ""
        while piece := read_terminal(master):
            received += piece  # may end inside a character: only the whole is decoded
            shown = received.decode(errors="replace").replace("\r\n", "\n")
            watch(shown, process)
        os.close(master)
        out, err = process.communicate()
        hung.cancel()
        return Run(
            process.returncode,
            shown if "stdout" in streams else out.decode(),
            shown if "stderr" in streams else err.decode(),
        )

    return run


def read_terminal(master):
    try:
        return os.read(master, 1 << 16)
    except OSError:  # the other side is closed
        return b""


@pytest.fixture(scope="session")
def shared():
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs the graphs in ../shared/data, which is not there")
    return path


@pytest.fixture
def write(tmp_path):
    """Writes a JSON file into tmp_path and gives its name back."""

    def write_json(name, content):
        (tmp_path / name).write_text(json.dumps(content))
        return name

    return write_json


@pytest.fixture
def net(write):
    return write("net.json", net_graph())


@pytest.fixture
def thrifty(write):
    return write("thrifty.json", plan_of(thrifty_steps(), peak_bytes=30, cost=37))
