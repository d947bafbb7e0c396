# SPDX-License-Identifier: Apache-2.0
"""JSON lines of measurements in their file: read, appended, forgotten."""

from __future__ import annotations

import json
from pathlib import Path

from .jobs import Job, Options


def read(results: Path) -> list[dict]:
    """Whole lines: a process that is killed may leave half of one."""
    if not results.exists():
        return []
    return [found for line in results.read_text(encoding="utf-8").splitlines() if (found := parsed(line)) is not None]


def parsed(line: str) -> dict | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def end_the_last_line(results: Path) -> None:
    """So that what is appended is a line of its own."""
    if results.exists() and not results.read_bytes().endswith(b"\n"):
        with results.open("a", encoding="utf-8") as file:
            file.write("\n")


def append(path: Path, line: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def key(line: dict) -> tuple[str, Job]:
    return line["network"], (line["method"], line["budget"])


def forget(results: Path, options: Options, wanted: dict[str, list[Job]], spare: list[Job]) -> None:
    settings = options.settings()
    kept = [line for line in read(results)
            if key(line)[1] in spare or key(line)[1] not in wanted.get(line["network"], [])
            or line.get("settings") != settings]
    results.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
