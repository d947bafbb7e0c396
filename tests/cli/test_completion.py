# SPDX-License-Identifier: Apache-2.0
import subprocess

import pytest


@pytest.fixture
def complete(program, tmp_path):
    """What bash offers at the end of a command line."""

    def run(*words):
        line = " ".join(f"'{word}'" for word in words)
        script = (
            f"source <('{program}' completion bash)\n"
            f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
            "_reprise\n"
            "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
        )
        done = subprocess.run(
            ["bash", "--norc", "-uc", script], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout.split("\n")[:-1]

    return run


def test_bash_completes_verbs(complete):
    assert complete("reprise", "pl") == ["plan"]
    assert complete("reprise", "co") == ["compare", "convert", "completion"]
    assert set(complete("reprise", "")) >= {"plan", "check", "simulate", "diff", "solvers"}


def test_bash_completes_options_of_the_verb(complete):
    assert complete("reprise", "plan", "net.json", "--bud") == ["--budget"]
    assert complete("reprise", "convert", "net.json", "--bud") == [""]
    assert "--training" in complete("reprise", "convert", "--")


def test_bash_completes_what_an_option_takes(complete):
    assert set(complete("reprise", "plan", "net.json", "--solver", "store-")) == {
        "store-all",
        "store-last",
        "store-cut-points",
    }
    assert complete("reprise", "convert", "net.json", "--to", "n") == ["node-link"]
    assert complete("reprise", "plan", "--reads", "") == ["listed", "retained"]
    assert complete("reprise", "bench", "--without", "pu") == ["published", "pull", "push"]


def test_bash_completes_what_follows_an_equals_sign(complete):
    # Readline parts "--solver=auto" into three words.
    assert complete("reprise", "plan", "--solver", "=", "au") == ["auto"]
    assert complete("reprise", "plan", "--objective", "=") == ["time", "memory"]


def test_bash_completes_files_with_their_blanks(complete, tmp_path):
    (tmp_path / "my net.json").touch()
    (tmp_path / "my plan.json").touch()
    assert complete("reprise", "plan", "my n") == ["my net.json"]
    assert sorted(complete("reprise", "check", "my")) == ["my net.json", "my plan.json"]


def test_bash_is_told_to_use_it(program):
    script = f"source <('{program}' completion bash); complete -p reprise"
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True)
    assert done.stdout == "complete -o filenames -F _reprise reprise\n"


def test_every_shell_has_a_script_with_every_verb(reprise):
    for shell in ("bash", "zsh", "fish"):
        run = reprise("completion", shell)
        assert (run.code, run.err) == (0, "")
        assert all(verb in run.out for verb in ("plan", "check", "simulate", "convert", "solvers"))
        answer = reprise("completion", shell, "--json").json()
        assert answer == {"shell": shell, "script": run.out}
