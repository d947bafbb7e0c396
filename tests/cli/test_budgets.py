# SPDX-License-Identifier: Apache-2.0
import pytest

MAX = "9223372036854775807"

# The plain peak of net.json is 40 B.
RIGHT = {
    "40": 40,
    "0040": 40,
    "40B": 40,
    "1kB": 1000,
    "1.5kB": 1500,
    "2MB": 2_000_000,
    "0.5GB": 500_000_000,
    "1TB": 10**12,
    "1KiB": 1024,
    "1.5MiB": 3 << 19,
    "6GiB": 6 << 30,
    "6 GiB": 6 << 30,
    "1TiB": 1 << 40,
    "0.0001kB": 0,
    ".5kB": 500,
    "100%": 40,
    "50 %": 20,
    "99.9%": 39,  # 39.96, rounded down
    "112.5%": 45,
    "1000%": 400,
    "0%": 0,
    MAX: int(MAX),
    "min": None,
}

WRONG = {
    "": "want bytes, a size such as 6GiB or 1.5GB, a share such as 50%, or min",
    "all": "want bytes, a size",
    "MAX": "want bytes, a size",
    "-5": "want bytes, a size",
    "%": "want bytes, a size",
    ".": "want bytes, a size",
    "1.5": "a number of bytes has to be whole",
    "1e9": "want bytes, a size",
    "1,000": "want bytes, a size",
    "0x10": "want bytes, a size",
    "5 5": "want bytes, a size",
    "1..5MB": "want bytes, a size",
    "50%%": "want bytes, a size",
    "5GiBs": "unknown unit 'GiBs' (did you mean 'GiB'?)",
    "5 gib": "unknown unit 'gib' (did you mean 'GiB'?)",
    "9223372036854775808": "too many digits",
    "9000000TiB": "more than 9223372036854775807 bytes",
    "99999999999999999999%": "too many digits",
}


@pytest.mark.parametrize("text", RIGHT)
def test_a_budget_is_read_to_the_byte(reprise, net, text):
    run = reprise("plan", net, "--budget", text, "--json")
    assert run.code == (3 if RIGHT[text] is not None and RIGHT[text] < 30 else 0)
    assert run.json()["budget_bytes"] == RIGHT[text]


@pytest.mark.parametrize("text", WRONG)
def test_a_budget_that_is_none_is_refused(reprise, net, text):
    run = reprise("plan", net, "--budget", text, "--json")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"reprise: budget '{text}': {WRONG[text]}")
    assert run.err.count("\n") == 1


def test_a_share_of_a_huge_peak_is_exact(reprise, write):
    size = 9_007_199_254_740_993  # 2^53 + 1: no double has it
    graph = {
        "format": "reprise-graph",
        "version": 1,
        "values": [{"name": "y", "bytes": size, "keep": True}],
        "ops": [{"name": "f", "cost": 1, "inputs": [], "outputs": ["y"]}],
    }
    answer = reprise("plan", write("huge.json", graph), "--budget", "100%", "--json").json()
    assert (answer["budget_bytes"], answer["peak_bytes"]) == (size, size)


def test_check_and_simulate_read_budgets_alike(reprise, net, thrifty):
    assert reprise("check", net, thrifty, "--budget", "75%").code == 0
    assert reprise("check", net, thrifty, "--budget", "74%").code == 5
    assert reprise("simulate", net, thrifty, "--budget", "75%").code == 0
    for verb in ("check", "simulate"):
        for text in ("min", "5x"):
            run = reprise(verb, net, thrifty, "--budget", text)
            assert (run.code, run.out) == (2, "")
            assert f"budget '{text}'" in run.err
