# SPDX-License-Identifier: Apache-2.0
"""The console script `reprise`. Stands beside the package, so that the C++ program starts without torch's import."""

import importlib.util
import os
import sys
from pathlib import Path


def main() -> int:
    words = sys.argv[1:]
    if words[:1] in (["explain"], ["-h"], ["--help"]):
        from reprise.cli import main as python_main

        return python_main()
    package = Path(importlib.util.find_spec("reprise").origin).parent
    program = str(package / "bin" / "reprise")
    os.execv(program, [program, *words])
