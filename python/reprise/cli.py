# SPDX-License-Identifier: Apache-2.0
"""The console script `reprise`: the C++ program, and the verbs that Python adds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "reprise"


def main() -> int:
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])
