# SPDX-License-Identifier: Apache-2.0
"""The documentation holds: its commands print what it shows, its links and excerpts exist.

Every ```console block of README.md and docs/ is run. A line that begins with `$ ` is a command (a
here-document goes on to its end mark); the lines up to the next command are what it prints,
standard output and error together, where a line of `…` stands for any lines. A command that fails
ends with `[exit N]`. The blocks of a page share a temporary folder, with `examples` in it, and run
in order. The program is REPRISE_PROGRAM, else the one that users build.
"""

import difflib
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("REPRISE_PROGRAM", ROOT / "build/bin/reprise")).absolute()
SANITIZED = Path(os.environ.get("REPRISE_PROGRAM", ROOT / "build/dev/cli/reprise")).absolute()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@dataclass
class Block:
    language: str
    line: int  # of its first line in the page, from 1
    lines: list


@dataclass
class Example:
    line: int
    command: str
    expected: list


def blocks_of(page):
    blocks, block = [], None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("```"):
            if block:
                block.lines.append(line)
        elif block:
            blocks.append(block)
            block = None
        else:
            block = Block(line[3:].strip(), number + 1, [])
    assert block is None, f"{page}: the block in line {block.line} does not end"
    return blocks


def examples_of(block):
    examples, end_mark = [], None
    for number, line in enumerate(block.lines, start=block.line):
        if end_mark:
            examples[-1].command += "\n" + line
            if line == end_mark:
                end_mark = None
        elif line.startswith("$ "):
            examples.append(Example(number, line[2:], []))
            mark = re.search(r"<<'(\w+)'", line)
            end_mark = mark and mark.group(1)
        else:
            assert examples, f"line {number}: output before the first command"
            examples[-1].expected.append(line)
    return examples


def run(command, folder):
    paths = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": paths, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    lines = done.stdout.decode("utf-8").splitlines()
    return lines + [f"[exit {done.returncode}]"] if done.returncode else lines


def matches(expected, printed):
    parts = (r"(?:.*\n)*?" if line == "…" else re.escape(line) + r"\n" for line in expected)
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in printed)) is not None


def skip_without_highs(command, folder):
    """Skips the page where a command names a solver that this build lacks."""
    if "--solver checkmate-" not in command:
        return
    graph = '{"nodes": [{"id": "f", "cost_ram": 4, "cost_cpu": 1}], "links": []}'
    listed = json.loads("".join(run(f"echo '{graph}' | reprise solvers - --json", folder)))
    reason = next(solver["reason"] for solver in listed if solver["name"] == "checkmate-ilp")
    if reason:
        pytest.skip(f"checkmate-ilp {reason}")


def name_of(page):
    return str(page.relative_to(ROOT))


def pages_with(language):
    return [page for page in PAGES if any(block.language == language for block in blocks_of(page))]


@pytest.mark.parametrize("page", pages_with("console"), ids=name_of)
def test_commands_print_what_the_page_shows(page, tmp_path):
    assert PROGRAM.exists(), f"{PROGRAM} is not there: make build"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/reprise").symlink_to(PROGRAM)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in blocks_of(page):
        if block.language != "console":
            continue
        for example in examples_of(block):
            skip_without_highs(example.command, folder)
            printed = run(example.command, folder)
            if matches(example.expected, printed):
                continue
            difference = difflib.unified_diff(example.expected, printed, "the page", "the program", lineterm="")
            pytest.fail(
                f"{name_of(page)}:{example.line}: $ {example.command}\n" + "\n".join(difference), pytrace=False
            )


@pytest.mark.parametrize("page", pages_with("cpp"), ids=name_of)
def test_excerpts_are_in_the_sources(page):
    """A ```cpp block that begins with `// a/file.h` is lines of that file; `…` stands for any."""
    for block in blocks_of(page):
        source = re.fullmatch(r"// (\S+\.(?:h|cpp))", block.lines[0]) if block.language == "cpp" else None
        if not source:
            continue
        text = (ROOT / source.group(1)).read_text(encoding="utf-8")
        excerpt = ["…", *block.lines[1:], "…"]
        assert matches(excerpt, text.splitlines()), f"{name_of(page)}:{block.line}: not in {source.group(1)}"


def prose_of(page):
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors_of(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", prose_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{name_of(page)}: {link}"


def test_the_picture_is_current(tmp_path):
    """docs/timeline.svg is what `make picture` draws; the sanitized program says the same as the other."""
    drawn = tmp_path / "timeline.svg"
    subprocess.run(
        [ROOT / "scripts/draw_timeline.py", ROOT / "examples/transformer.json", "50%", drawn],
        env={**os.environ, "REPRISE_PROGRAM": str(SANITIZED)},
        check=True,
    )
    assert drawn.read_text(encoding="utf-8") == (ROOT / "docs/timeline.svg").read_text(encoding="utf-8")
