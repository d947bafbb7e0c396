# SPDX-License-Identifier: Apache-2.0
"""`schedule` against the figures that were published with the lower-set graphs, and their marks for `plan`."""

import hashlib
import itertools
import json
import resource
import subprocess

import pytest

from running import HANG

PLAIN_PEAKS = {"vgg19": 2132279296, "unet": 7803387904, "resnet50": 3468165120}
COSTS = {"vgg19": 190, "unet": 231, "resnet50": 653}
LOWER_SETS = {"vgg19": (47, 47), "unet": (61, 331), "resnet50": (177, 241)}  # approx, exact
SMALLEST = {
    ("vgg19", "approx"): 2106589184,
    ("vgg19", "exact"): 2106589184,
    ("unet", "approx"): 5784403968,
    ("unet", "exact"): 5545689088,
    ("resnet50", "approx"): 1310195712,
    ("resnet50", "exact"): 1258815488,
}

# The approximate and the exact dynamic program (Kusumoto et al., NeurIPS'19, section 4): graph, method, budget (min, or
# a share of the plain peak in percent), mode, kept cost, kept bytes, segments, peak, peak with the gradients of
# sources, extra cost, forward calls, backward calls, overhead in percent once dead work is gone, first 12 digits of the
# text's SHA-256.
ROWS = [
    ("vgg19", "approx", "min", "TC", 149, 2077750272, 33, 2087321600, 2613227552, 57, 76, 46, 18.9, "35a757def668"),
    ("vgg19", "exact", "min", "TC", 149, 2077750272, 33, 2087321600, 2613227552, 57, 76, 46, 18.9, "35a757def668"),
    ("vgg19", "approx", "min", "MC", 67, 1862533120, 14, 2003828736, 2569195552, 129, 85, 46, 18.4, "a2795b05efbd"),
    ("vgg19", "exact", "min", "MC", 67, 1862533120, 14, 2003828736, 2569195552, 129, 85, 46, 18.4, "a2795b05efbd"),
    ("vgg19", "approx", "100", "TC", 150, 2103440384, 34, 2113011712, 2638917664, 56, 75, 46, 18.4, "5e68b5d15592"),
    ("vgg19", "exact", "100", "TC", 150, 2103440384, 34, 2113011712, 2638917664, 56, 75, 46, 18.4, "5e68b5d15592"),
    ("vgg19", "approx", "100", "MC", 76, 1836843008, 14, 2003828736, 2569195552, 121, 86, 46, 24.7, "52b8986fefce"),
    ("vgg19", "exact", "100", "MC", 76, 1836843008, 14, 2003828736, 2569195552, 121, 86, 46, 24.7, "52b8986fefce"),
    ("unet", "approx", "min", "TC", 111, 5141464064, 20, 5462515712, 5467923976, 132, 111, 61, 43.7, "b3048331b384"),
    ("unet", "approx", "min", "MC", 24, 2257330176, 7, 4460257280, 4465665544, 211, 118, 61, 72.3, "12a89d780906"),
    ("unet", "approx", "100", "TC", 193, 7094158336, 37, 7415209984, 7420618248, 56, 98, 62, 19.5, "488470b05563"),
    ("unet", "approx", "100", "MC", 32, 1532633088, 6, 4522319872, 4527728136, 204, 120, 60, 69.7, "fbeab1f4daa4"),
    ("unet", "exact", "min", "TC", 81, 4902945792, 17, 5211259904, 5216077832, 157, 109, 62, 54.1, "7429cdf44544"),
    ("unet", "exact", "min", "MC", 48, 2973294592, 11, 4864720896, 4870129160, 188, 113, 62, 58.0, "65c6369db78b"),
    ("unet", "exact", "100", "TC", 210, 7114580992, 35, 7422895104, 7427713032, 40, 100, 63, 16.5, "0c777c667f70"),
    ("unet", "exact", "100", "MC", 24, 1419911168, 5, 4409597952, 4415006216, 210, 117, 62, 76.6, "4f56777f8b5f"),
    ("resnet50", "approx", "min", "TC", 365, 1294791680, 58, 1307508736, 1315704864, 295, 291, 189, 42.4, "adbe63f27a92"),
    ("resnet50", "approx", "min", "MC", 25, 789970944, 16, 1008336896, 1098362912, 634, 342, 181, 83.9, "034d5a463fe8"),
    ("resnet50", "approx", "50", "TC", 509, 1715467264, 90, 1728184320, 1736380448, 164, 268, 188, 22.7, "48d253ae9bb6"),
    ("resnet50", "approx", "50", "MC", 7, 462422016, 8, 950534144, 1051861024, 650, 349, 176, 68.5, "f8b49e13b7b6"),
    ("resnet50", "approx", "70", "TC", 569, 2396255232, 113, 2408972288, 2417168416, 115, 255, 189, 15.5, "571179872431"),
    ("resnet50", "approx", "70", "MC", 14, 231211008, 5, 1207435264, 1309043744, 642, 350, 176, 50.5, "6400d3e47fcc"),
    ("resnet50", "exact", "70", "MC", 14, 231211008, 5, 1207435264, 1309043744, 642, 350, 176, 50.5, "6400d3e47fcc"),
    ("resnet50", "approx", "100", "TC", 600, 3398169600, 144, 3410886656, 3419082784, 99, 239, 191, 14.5, "bece4b00e0ba"),
    ("resnet50", "approx", "100", "MC", 2, 154140672, 3, 1464336384, 1565944864, 653, 352, 176, 39.2, "f62a5faa9673"),
    ("resnet50", "exact", "100", "MC", 2, 154140672, 3, 1464336384, 1565944864, 653, 352, 176, 39.2, "f62a5faa9673"),
    ("resnet50", "exact", "50", "MC", 45, 404619264, 8, 976224256, 1077767200, 610, 345, 178, 56.8, "16059798fafc"),
    ("resnet50", "exact", "min", "TC", 268, 1243411456, 47, 1256128512, 1281921056, 388, 303, 189, 56.8, "1d1cada31f8b"),
    ("resnet50", "exact", "min", "MC", 100, 1043660800, 27, 1143209984, 1208262688, 554, 325, 188, 76.0, "3c96d2a370ed"),
    ("resnet50", "exact", "50", "TC", 546, 1715467264, 90, 1728184320, 1736380448, 128, 268, 188, 17.6, "8ca1ebca1d96"),
    ("resnet50", "exact", "70", "TC", 606, 2396255232, 112, 2408972288, 2417168416, 77, 253, 188, 10.0, "4e126553f64c"),
    ("resnet50", "exact", "100", "TC", 639, 3423859712, 141, 3436576768, 3444772896, 58, 234, 188, 8.1, "48cab7549420"),
]

# The same section, method E0, the original's exact: graph, budget in bytes, kept cost with mode TC. Its order of sets
# loses sequences, so the corrected one keeps at least as much.
ORIGINAL = [
    ("unet", 5716426752, 72),
    ("unet", 7803387904, 210),
    ("resnet50", 1284505600, 259),
    ("resnet50", 1734082560, 538),
    ("resnet50", 2427715584, 601),
    ("resnet50", 3468165120, 638),
]

# Section 5.2: candidates, square root, sets taken, peak, overhead in percent, forward calls, backward calls, hash.
CHEN = {
    "vgg19": (47, 6, 8, 1746927616, 88.9, 89, 46, "55db769c6745"),
    "unet": (12, 3, 4, 7803387904, 95.2, 118, 60, "868ade8ffcf6"),
    "resnet50": (41, 6, 8, 1130364928, 99.8, 351, 176, "81206992951a"),
}

# Conv, ReLU, loss: the text of section 3.1, and what 3.2 says of it.
SMALL_SCHEDULE = """compute 0
compute 1
compute 2
forget 5 forward
compute 2
forget 5 forward
compute 5 0 1
forget 5 backward
forget 4 forward
compute 1
forget 3 forward
compute 4 0
forget 4 backward
forget 4 forward
compute 3 0 1
forget 3 backward
"""


def block(phase, reads, makes, kind):
    lines = [phase, f"{len(reads)} {len(makes)}", *reads, *map(str, makes), kind, "{}"]
    return "\n".join(lines) + "\n"


def text_graph(sizes, functions):
    """`functions`: type, inputs, outputs, and whether backward reads the outputs."""
    text = f"{len(sizes)} {2 * len(functions)}\n"
    text += "".join(f"{i} {size} _\n" for i, size in enumerate(sizes))
    for kind, inputs, outputs, _ in functions:
        text += block("forward", [f"{i} _" for i in inputs], outputs, kind)
    for kind, inputs, outputs, reads_outputs in functions:
        reads = [f"{o} gradient" for o in outputs]
        reads += [f"{o} output" for o in outputs] if reads_outputs else [f"{i} input" for i in inputs]
        text += block("backward", reads, inputs, kind)
    return text


SMALL = text_graph(
    [64, 16, 40, 100, 100, 4],
    [("Conv", [0, 2], [3], False), ("ReLU", [3], [4], True), ("Loss", [4, 1], [5], False)],
)


def run_schedule(text, functions, sources, sinks):
    """Does what the original's runner does, and stops where it would. Each gradient is made once."""
    half = len(functions)
    values, gradients, done, ran = set(sources), set(), set(), set()
    for line in text.splitlines():
        words = line.split()
        if words[0] == "forget":
            (values if words[2] == "forward" else gradients).remove(int(words[1]))
            continue
        number = int(words[1])
        _, inputs, outputs, reads_outputs = functions[number % half]
        if number < half:
            assert set(inputs) <= values, line
            values |= set(outputs)
            gradients |= set(outputs) & sinks
            ran.add(number)
            continue
        assert number - half in ran and len(words) > 2, line
        assert set(outputs) <= gradients and set(outputs if reads_outputs else inputs) <= values, line
        for position in map(int, words[2:]):
            assert (number, position) not in done, line
            done.add((number, position))
            gradients.add(inputs[position])
    assert done == {(half + f, j) for f, (_, inputs, _, _) in enumerate(functions) for j in range(len(inputs))}


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def graph_file(shared, graph):
    return shared / f"pfnet/cg_{graph}.txt"


def budget_of(graph, method, budget):
    return SMALLEST[graph, method] if budget == "min" else PLAIN_PEAKS[graph] * int(budget) // 100


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]))
def test_golden_rows(reprise, shared, row):
    graph, method, budget, mode, kept, kept_bytes, segments, peak, with_sources, extra, forward, backward, _, digits = row
    bytes_ = str(budget_of(graph, method, budget))
    words = ["schedule", graph_file(shared, graph), "-b", bytes_, "-t", mode[0], "--method", method]
    answer = reprise(*words, "--json").json()
    assert answer["lower_sets"] == LOWER_SETS[graph][method == "exact"]
    assert (answer["kept_cost"], answer["kept_bytes"], answer["segments"]) == (kept, kept_bytes, segments)
    assert answer["peak_bytes"] == peak
    assert answer["peak_bytes_with_source_gradients"] == with_sources
    assert (answer["base_cost"], answer["cost"] - answer["base_cost"]) == (COSTS[graph], extra)
    assert (answer["forward_calls"], answer["backward_calls"]) == (forward, backward)
    assert answer["formula_bytes"] <= int(bytes_)
    assert sha(answer["schedule"]) == digits


@pytest.mark.parametrize("graph", COSTS)
def test_without_json_the_schedule_is_all_that_is_printed(reprise, shared, graph):
    words = ["schedule", graph_file(shared, graph), "-b", str(PLAIN_PEAKS[graph]), "--method", "approx"]
    assert reprise(*words).out == reprise(*words, "--json").json()["schedule"]


@pytest.mark.parametrize("graph, budget, kept", ORIGINAL)
def test_exact_never_keeps_less_than_the_original(reprise, shared, graph, budget, kept):
    answer = reprise("schedule", graph_file(shared, graph), "-b", str(budget), "--json").json()
    assert answer["kept_cost"] >= kept


@pytest.mark.parametrize("graph, method", SMALLEST)
def test_smallest_budgets(reprise, shared, graph, method):
    smallest = SMALLEST[graph, method]
    run = reprise("schedule", graph_file(shared, graph), "-b", str(smallest - 1), "--method", method)
    assert (run.code, run.out) == (3, "IMPOSSIBLE\n")
    assert str(smallest) in run.err
    assert reprise("schedule", graph_file(shared, graph), "-b", str(smallest), "--method", method).code == 0


@pytest.mark.parametrize("graph", CHEN)
def test_square_root(reprise, shared, graph):
    candidates, root, taken, peak, overhead, forward, backward, digits = CHEN[graph]
    run = reprise("schedule", "--method", "chen", "--json", stdin=graph_file(shared, graph).read_bytes())
    answer = run.json()
    assert run.err == f"reprise: {candidates} candidates, square root {root}, {taken} sets taken\n"
    assert (answer["peak_bytes"], answer["segments"]) == (peak, taken - 1)
    assert round(100 * answer["cost"] / answer["base_cost"] - 100, 1) == overhead
    assert (answer["forward_calls"], answer["backward_calls"]) == (forward, backward)
    assert sha(answer["schedule"]) == digits


@pytest.mark.parametrize("graph", COSTS)
def test_one_segment_is_plain_training(reprise, shared, graph):
    run = reprise("schedule", graph_file(shared, graph), "-t", "M", "--json")
    answer = run.json()
    assert run.err == "reprise: no -b: the schedule is under no bound\n"
    assert (answer["segments"], answer["peak_bytes"]) == (1, PLAIN_PEAKS[graph])
    assert answer["cost"] == 2 * answer["base_cost"]


def test_small_example(reprise):
    run = reprise("schedule", "-b", "304", stdin=SMALL.encode())
    assert (run.code, run.out, run.err) == (0, SMALL_SCHEDULE, "")
    assert sha(run.out) == "e22d35d76008"
    assert reprise("schedule", "-", "-b", "303", stdin=SMALL.encode()).code == 3
    coarse = reprise("schedule", "-b", "308", "-t", "M", "--json", stdin=SMALL.encode()).json()
    assert (coarse["segments"], coarse["kept_cost"], coarse["lower_sets"]) == (2, 10, 4)
    assert reprise("schedule", "-b", "408", "-t", "M", "--json", stdin=SMALL.encode()).json()["segments"] == 1


def test_forgets_can_stay_where_they_are(reprise):
    late = reprise("schedule", "-b", "304", "-opt", "off", stdin=SMALL.encode()).out
    assert late != SMALL_SCHEDULE
    assert sorted(late.splitlines()) == sorted(SMALL_SCHEDULE.splitlines())
    assert reprise("schedule", "-b", "304", "-opt", "on", stdin=SMALL.encode()).out == SMALL_SCHEDULE


def test_refuses_other_words_for_opt(reprise):
    for words in [["-opt", "of"], ["-o", "p", "off"], ["-opt"]]:
        assert reprise("schedule", *words, stdin=SMALL.encode()).code == 2


@pytest.mark.parametrize("text", ["abc", "-1", "1.5", "99999999999999999999"])
def test_refuses_a_budget_that_is_none(reprise, text):
    run = reprise("schedule", f"-b{text}", stdin=SMALL.encode())
    assert (run.code, run.out) == (2, "")
    assert text in run.err


# What made the original crash, or print what its runner could not run.
ODD_GRAPHS = {
    "two sinks": ([1, 8, 8, 8], [("A", [0], [1], False), ("B", [1], [2], True), ("C", [1], [3], False)]),
    "two roots": (
        [1, 8, 8, 8, 8, 2],
        [("A", [0], [1], False), ("B", [0], [2], True), ("Conv", [1], [3], True), ("D", [2], [4], False)]
        + [("Add", [3, 4], [5], False)],
    ),
    "two outputs": (
        [1, 8, 8, 8, 2],
        [("Split", [0], [1, 2], True), ("B", [1], [3], True), ("Add", [3, 2], [4], False)],
    ),
    "apart": ([1, 1, 8, 8], [("A", [0], [2], True), ("B", [1], [3], False)]),
    "no inputs": ([8, 8], [("Fill", [], [0], False), ("B", [0], [1], True)]),
    "twice": ([1, 8, 8], [("A", [0], [1], False), ("Mul", [1, 1], [2], False)]),
    "huge": ([1, 2**40, 2**40], [("A", [0], [1], False), ("B", [1], [2], False)]),
    "nothing": ([5], []),
}


# Budgets, as parts of the smallest, with a mode and liveness: any two of these together; the long tests have all three.
PAIRS = [(1, "T", "on"), (1, "M", "off"), (1.25, "T", "off"), (1.25, "M", "on"), (10, "T", "on"), (10, "M", "off")]
TRIPLES = list(itertools.product((1, 1.25, 10), "TM", ("on", "off")))


@pytest.mark.parametrize("ways", [PAIRS, pytest.param(TRIPLES, marks=pytest.mark.long)], ids=["pairs", "triples"])
@pytest.mark.parametrize("method", ["exact", "approx", "chen"])
@pytest.mark.parametrize("name", ODD_GRAPHS)
def test_odd_graphs(reprise, name, method, ways):
    sizes, functions = ODD_GRAPHS[name]
    text = text_graph(sizes, functions).encode()
    made = {o for _, _, outputs, _ in functions for o in outputs}
    read = {i for _, inputs, _, _ in functions for i in inputs}
    refused = reprise("schedule", "-b", "0", "--method", method, stdin=text)
    smallest = int(refused.err.split()[-1]) if refused.code == 3 else 0
    for part, mode, liveness in ways:
        words = ["-b", str(int(part * smallest)), "-t", mode, "-opt", liveness, "--method", method]
        run = reprise("schedule", *words, stdin=text)
        assert run.code == 0, run.err
        run_schedule(run.out, functions, set(range(len(sizes))) - made, made - read)


def test_too_many_lower_sets_are_no_accident(reprise):
    branches = 40
    functions = [("A", [0], [1 + i], False) for i in range(branches)]
    functions.append(("Sum", list(range(1, 1 + branches)), [1 + branches], False))
    text = text_graph([1] * (branches + 2), functions).encode()  # 2^40 lower sets
    run = reprise("schedule", "-b", "1000", "--json", stdin=text)
    assert run.code == 0
    assert run.json()["lower_sets"] == branches + 2
    assert "too many lower sets" in run.err
    run = reprise("schedule", "-b", "3", stdin=text)  # no proof that it is impossible
    assert (run.code, run.out) == (4, "")
    assert "-b 3 is not met; the smallest that works with these is" in run.err


def test_27000_lower_sets_fit_into_two_gibibytes(release_program):
    length = 29  # of three chains side by side: 30³ lower sets, and one with the sum
    functions = []
    for chain in range(3):
        for i in range(length):
            variable = 1 + chain * length + i
            functions.append(("A" if i % 3 else "Conv", [variable - 1 if i else 0], [variable], i % 2 == 0))
    last = 1 + 3 * length
    functions.append(("Sum", [length, 2 * length, 3 * length], [last], False))
    sizes = [1 + 7919 * i % 1000 for i in range(last + 1)]
    done = subprocess.run(
        [release_program, "schedule", "-b", str(2 * sum(sizes) // 5), "--json"],
        input=text_graph(sizes, functions).encode(),
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
        timeout=HANG,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert answer["lower_sets"] == 27001
    sources, sinks = {0}, {last}
    run_schedule(answer["schedule"], functions, sources, sinks)


def is_never_worse(reprise, path, solver, peak, overhead):
    run = reprise("plan", path, "--budget", str(peak), "--solver", solver, "--json")
    assert run.code == 0, run.err
    answer = json.loads(run.out)
    assert answer["peak_bytes"] <= peak
    assert round(100 * answer["overhead"], 1) <= overhead


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]))
def test_plans_are_never_worse(reprise, shared, row):
    solver = {"approx": "lower-set", "exact": "lower-set-exact"}[row[1]]
    is_never_worse(reprise, graph_file(shared, row[0]), solver, row[7], row[12])
