# SPDX-License-Identifier: Apache-2.0
import subprocess

import pytest

VERBS = ["plan", "sweep", "compare", "bench", "max-batch", "check", "simulate", "diff", "convert", "solvers", "completion"]

WRONG = {
    ("paln",): "reprise: unknown verb 'paln' (did you mean 'plan'?)\n",
    ("comple",): "reprise: unknown verb 'comple' (did you mean 'completion'?)\n",
    ("frobnicate",): "reprise: unknown verb 'frobnicate'\n",
    ("--vresion",): "reprise: unknown option '--vresion' (did you mean '--version'?) (see reprise --help)\n",
    (): "reprise: want a verb (see reprise --help)\n",
    ("plan", "net.json", "--budget", "1", "--solver", "store"): "reprise: unknown solver 'store' (did you mean 'store-all'?)\n",
    ("plan", "net.json", "--budget", "1", "--solver", "sotre-last"): "reprise: unknown solver 'sotre-last' (did you mean 'store-last'?)\n",
    ("plan", "net.json", "--budget", "1", "--without", "dorp"): "reprise: unknown technique 'dorp' (did you mean 'drop'?)\n",
    ("plan", "net.json", "--budgte", "1"): "reprise plan: unknown option '--budgte' (did you mean '--budget'?) (see reprise plan --help)\n",
    ("check", "net.json", "p.json", "--jsno"): "reprise check: unknown option '--jsno' (did you mean '--json'?) (see reprise check --help)\n",
    ("plan", "net.json", "more.json", "--budget", "1"): "reprise plan: unexpected argument 'more.json' (see reprise plan --help)\n",
    ("plan", "net.json", "--budget", "1", "--format", "nodelink"): "reprise plan: --format: 'nodelink' (did you mean 'node-link'?) is none of {reprise-graph,node-link,lower-set} (see reprise plan --help)\n",
    ("convert", "net.json", "--to", "reprise-grahp"): "reprise convert: --to: 'reprise-grahp' (did you mean 'reprise-graph'?) is none of {reprise-graph,node-link,lower-set,dot} (see reprise convert --help)\n",
    ("plan", "net.json", "--budget", "1", "--objective", "speed"): "reprise plan: --objective: 'speed' is none of {time,memory} (see reprise plan --help)\n",
    ("completion", "bahs"): "reprise completion: SHELL: 'bahs' (did you mean 'bash'?) is none of {bash,zsh,fish} (see reprise completion --help)\n",
}  # fmt: skip

# Refused with one sentence; its words are CLI11's.
ALSO_WRONG = [
    ("plan",),
    ("plan", "net.json"),
    ("plan", "net.json", "--budget"),
    ("plan", "net.json", "--budget", "1", "--budget", "2"),
    ("plan", "net.json", "--budget", "1", "--iterations", "0"),
    ("plan", "net.json", "--budget", "1", "--iterations", "many"),
    ("plan", "net.json", "--budget", "1", "--seed", "-1"),
    ("plan", "net.json", "--budget", "1", "--threads", "0"),
    ("plan", "net.json", "--budget", "1", "--time-limit", "soon"),
    ("plan", "net.json", "--budget", "1", "--time-limit", "-1s"),
    ("plan", "net.json", "--budget", "1", "--time-limit", "nan"),
    ("plan", "net.json", "--budget", "1", "--time-limit", "0x10"),
    ("plan", "net.json", "--budget", "1", "--gap", "small"),
    ("plan", "net.json", "--budget", "1", "--gap", "-1%"),
    ("plan", "net.json", "--budget", "1", "--gap", "1 %"),
    ("plan", "net.json", "--budget", "1", "--keep"),
    ("check", "net.json"),
    ("diff", "one.json"),
    ("convert",),
    ("completion",),
    ("plan", "missing.json", "--budget", "1"),
    ("plan", ".", "--budget", "1"),
    ("check", "net.json", "missing.json"),
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_near_miss_gets_the_nearest_word(reprise, net, words):
    run = reprise(*words)
    assert (run.code, run.out) == (2, "")
    assert run.err == WRONG[words]


@pytest.mark.parametrize("words", ALSO_WRONG, ids=" ".join)
def test_wrong_usage_is_exit_2_and_one_sentence(reprise, net, words):
    run = reprise(*words)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("reprise") and run.err.count("\n") == 1


def test_help_and_version_are_exit_0_and_go_to_standard_output(reprise):
    run = reprise("--version")
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("reprise 0.")
    help_text = reprise("--help")
    assert (help_text.code, help_text.err) == (0, "")
    assert all(verb in help_text.out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen(reprise, verb):
    run = reprise(verb, "--help")
    assert (run.code, run.err) == (0, "")
    lines = run.out.splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines) <= 100
    assert "--json" in run.out


def test_time_limits_come_in_every_unit(reprise, net):
    for limit in ("1", "1.5", "10s", "500ms", "2m", "1h"):
        assert reprise("plan", net, "--budget", "30", "--time-limit", limit).code == 0


def test_a_full_standard_output_is_an_error(program, net, tmp_path):
    for words in (("plan", net, "--budget", "30"), ("simulate", net, "--json"), ("convert", net)):
        with open("/dev/full", "w") as full:
            run = subprocess.run(
                [program, *words], stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, text=True
            )
        assert run.returncode == 2
        assert run.stderr.startswith("reprise: <stdout>: ") and run.stderr.count("\n") == 1


def test_a_file_whose_name_is_no_text_is_a_file(reprise, net, tmp_path):
    name = b"n\xfft\n.json"
    (tmp_path / "net.json").rename(tmp_path / name.decode(errors="surrogateescape"))
    run = reprise("plan", name, "--budget", "30", "-o", b"p\xff.json", "--json")
    assert run.code == 0
    assert run.json()["peak_bytes"] == 30
    assert reprise("diff", b"p\xff.json", b"p\xff.json", "--json").json()["same"] is True
