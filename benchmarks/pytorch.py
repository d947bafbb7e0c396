#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains networks on the CPU, plainly and inside budgets: are they the same bit for bit, what do they take, how long?

    benchmarks/pytorch.py [--only resnet,gpt] [--budgets 80%,60%,40%,min] [--write docs/pytorch.md]

A row: over three optimizer steps outputs, gradients, buffers and random state are compared bitwise; peaks are those
of a later step; times are medians of steps that alternate with plain ones. Exits with 1 where a row is not exact,
passes its budget, or misses its prediction by more than 2 %.
"""

from __future__ import annotations

import argparse
import copy
import gc
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python" / "tests"))

import torch  # noqa: E402

import reprise  # noqa: E402
from cases import Case, classes, pixels, squares, tensors, tokens  # noqa: E402
from exactness import SEED, STEPS, built, data, difference, note  # noqa: E402
from models import DenseNet, MobileNet, Recurrent, ResNet, UNet, bert, gpt2, vit  # noqa: E402

NETWORKS = {
    "ResNet-50, 8 × 128²": Case(ResNet, tensors(8, 3, 128, 128), classes),
    "DenseNet-121, dropout, 4 × 128²": Case(lambda: DenseNet(drop=0.15), tensors(4, 3, 128, 128), classes),
    "MobileNet, 32 × 96²": Case(MobileNet, tensors(32, 3, 96, 96), classes),
    "U-Net, bilinear, 4 × 96²": Case(lambda: UNet(16), tensors(4, 3, 96, 96), pixels),
    "LSTM, dropout, 32 × 64": Case(lambda: Recurrent(torch.nn.LSTM), tensors(32, 64, 8), squares),
    "GRU, dropout, 32 × 24": Case(lambda: Recurrent(torch.nn.GRU), tensors(32, 24, 8), squares),
    "GPT-2, 6 layers of 256, 4 × 128": Case(lambda: gpt2(6, 256, 8, 5000, 128), tokens(4, 128, words=5000), classes),
    "BERT, 6 layers of 256, 4 × 128": Case(lambda: bert(6, 256, 8, 5000, 128), tokens(4, 128, words=5000), classes),
    "ViT, 6 layers of 192, 8 × 64²": Case(lambda: vit(6, 192, 6, 64, 8), tensors(8, 3, 64, 64), classes),
}
BUDGETS = ("100%", "80%", "60%", "40%", "min")


def main() -> int:
    args = parse()
    rows, bad = [], 0
    for name, case in NETWORKS.items():
        if args.only and not any(word.lower() in name.lower() for word in args.only.split(",")):
            continue
        for row, good in network_rows(name, case, args):
            print(row, flush=True)
            rows.append(row)
            bad += not good
    if args.write:
        write_table(Path(args.write), rows)
    return 1 if bad else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--budgets", default=",".join(BUDGETS))
    parser.add_argument("--times", type=int, default=5, help="steps that are timed")
    parser.add_argument("--write", help="a page with a table to replace")
    return parser.parse_args()


class Trainer:
    def __init__(self, model, case: Case):
        self.model, self.case = model, case
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)

    def step(self, given, run=None):
        args, kwargs = given
        self.optimizer.zero_grad()
        out = self.model(*args, **kwargs)
        loss = self.case.loss(out)
        loss.backward()
        kept = None if run is None else run(self.model, (out, loss), args)
        del out, loss
        self.optimizer.step()
        return kept

    def seconds(self, given) -> float:
        start = time.perf_counter()
        self.step(given)
        return time.perf_counter() - start

    def peak(self, given) -> int:
        args, kwargs = given
        self.optimizer.zero_grad()
        with reprise.memory.measure() as memory:
            out = self.model(*args, **kwargs)
            loss = self.case.loss(out)
            loss.backward()
        return memory.peak


def network_rows(name: str, case: Case, args: argparse.Namespace):
    model = built(case)
    steps = data(case, STEPS)
    plain = Trainer(copy.deepcopy(model), case)
    torch.manual_seed(SEED)
    expected = [plain.step(given, note) for given in steps]
    for budget in args.budgets.split(","):
        gc.collect()
        torch._dynamo.reset()
        start = time.perf_counter()
        mine = Trainer(reprise.compile(copy.deepcopy(model), budget), case)
        torch.manual_seed(SEED)
        try:
            taken = [mine.step(steps[0], note)]
            first = time.perf_counter() - start
            taken += [mine.step(given, note) for given in steps[1:]]
        except reprise.InfeasibleBudget as error:
            yield f"| {name} | {budget} | {error} | | | | | | | | |", True
            continue
        yield row(name, budget, difference(expected, taken), first, plain, mine, steps, args)


def row(name, budget, differs, first, plain: Trainer, mine: Trainer, steps, args) -> tuple[str, bool]:
    for _ in range(STEPS):  # a plan's first steps are measured, which takes time
        mine.step(steps[0])
    plain_peak = plain.peak(steps[0])
    peak = mine.peak(steps[0])
    report = mine.model.report()
    pairs = [(plain.seconds(steps[0]), mine.seconds(steps[0])) for _ in range(args.times)]
    ratio = statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs)
    mib = 1 << 20
    off = peak / report.predicted_bytes - 1
    kept = report.budget_bytes is None or peak <= report.budget_bytes
    good = differs is None and kept and abs(off) <= 0.02
    limit = "–" if report.budget_bytes is None else f"{report.budget_bytes / mib:.1f}"
    # `plain` and `mine` are both in memory: each peak counts the other's weights and optimizer.
    return (f"| {name} | {budget} | {differs or 'yes'} | {plain_peak / mib:.1f} | {limit} | "
            f"{report.predicted_bytes / mib:.1f} | {peak / mib:.1f} ({off:+.1%}) | {report.overhead:+.1%} | "
            f"{ratio - 1:+.1%} | {first:.1f} | {'✓' if good else '✗'} |"), good


def write_table(page: Path, rows: list[str]) -> None:
    head = ["| network | budget | exact | plain MiB | budget MiB | predicted | measured | planned time | measured "
            "time | first step s | |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    begin, end = "<!-- table -->", "<!-- end of table -->"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    page.write_text("\n".join([before + begin, *head, *rows, end]) + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
