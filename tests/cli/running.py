# SPDX-License-Identifier: Apache-2.0
"""How tests run the program."""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HANG = 300  # seconds; a run that takes longer has hung


@dataclass
class Run:
    code: int
    out: str
    err: str

    def json(self):
        """The one JSON document on standard output."""
        assert self.out.endswith("\n") and self.out.count("\n") == 1, self.out
        return json.loads(self.out)


def environment(changes):
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    return {**env, "TERM": "xterm", **(changes or {})}


def press_ctrl_c(once_shown):
    """A `watch` for the terminal that sends one interrupt, once this text is there."""
    pressed = []

    def watch(shown, process):
        if once_shown in shown and not pressed:
            pressed.append(True)
            process.send_signal(signal.SIGINT)

    return watch
