"""The library as another project gets it: installed, found, built against."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """examples/cmake_project, built against an installed Reprise."""
    folder = tmp_path_factory.mktemp("package")
    run("cmake", "--install", ROOT / "build/release", "--prefix", folder / "installed")
    run("cmake", "-S", ROOT / "examples/cmake_project", "-B", folder / "build", "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={folder / 'installed'}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", folder / "build")
    return folder


def test_a_project_that_finds_the_package_builds_and_plans(example):
    plain, plan = run(example / "build/plan_a_transformer").splitlines()
    assert plain == "plain:      2.83 GB"
    peak, work = re.fullmatch(r"plan: +(.*) GB, (.*) % more work", plan).groups()
    assert float(peak) <= 2.83 / 2 and float(work) < 35


def test_the_bundled_graph_is_what_the_example_writes(example):
    written = example / "transformer.json"
    run(example / "build/plan_a_transformer", written)
    assert written.read_text() == (ROOT / "examples/transformer.json").read_text()


def test_the_program_and_every_header_are_installed(example):
    installed = example / "installed"
    assert run(installed / "bin/reprise", "--version").startswith("reprise ")
    headers = {path.relative_to(ROOT) for path in ROOT.glob("reprise/**/*.h")}
    found = {path.relative_to(installed / "include") for path in installed.glob("include/**/*.h")}
    assert found == headers
