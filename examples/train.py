#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small ResNet and a small GPT on the CPU, each plainly and by Reprise inside a memory budget.

The two copies of a network start from the same weights and take each step in turn on the same batch with the same
random numbers, so that the gradients of every step can be compared. They must not differ: exits with 1 if they do.
"""

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import reprise

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20


def conv_and_norm(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    """Batch norm that forgets its first batches in a few dozen steps: there are not many more."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs, momentum=0.3)]


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(*conv_and_norm(inputs, outputs, stride=stride), nn.ReLU(inplace=True),
                                  *conv_and_norm(outputs, outputs))
        same = inputs == outputs
        self.skip = nn.Identity() if same else nn.Sequential(*conv_and_norm(inputs, outputs, size=1, stride=stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.body(x) + self.skip(x))


class ResNet(nn.Sequential):
    """ResNet-20 (3 blocks a stage) and its like, as for CIFAR: He et al., 2015, section 4.2."""

    def __init__(self, width: int, blocks: int, classes: int = 10):
        layers = [*conv_and_norm(1, width), nn.ReLU(inplace=True)]
        inputs = width
        for stage in range(3):
            outputs = width << stage
            for block in range(blocks):
                layers.append(Block(inputs, outputs, stride=2 if stage and not block else 1))
                inputs = outputs
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Layer(nn.Module):
    """Attention to what came before, then an MLP, each beside a skip."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + self.drop(self.out(heads.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, characters: int, context: int, width: int, layers: int, heads: int = 4, dropout: float = 0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.Sequential(*(Layer(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.layers(self.drop(self.tokens(tokens) + self.positions(positions)))))


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


@dataclass
class Job:
    name: str
    model: nn.Module
    batch: Callable[[], tuple[Tensor, Tensor]]
    held_out: tuple[Tensor, Tensor]


def resnet_on_digits(small: bool) -> Job:
    side, batch, width, blocks = (16, 8, 8, 3) if small else (32, 64, 16, 3)
    digits = load_digits()
    images = F.interpolate(torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, size=(side, side),
                           mode="bilinear")
    labels = torch.tensor(digits.target)

    def draw() -> tuple[Tensor, Tensor]:
        which = torch.randint(1500, (batch,))
        return images[which], labels[which]

    name = f"ResNet-{6 * blocks + 2} on digits, {side}×{side}, batch {batch}"
    return Job(name, ResNet(width, blocks), draw, (images[1500:], labels[1500:]))


def gpt_on_our_docs(small: bool) -> Job:
    context, batch, width, layers = (16, 4, 16, 2) if small else (128, 16, 128, 4)
    text = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))])
    codes = {character: code for code, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([codes[character] for character in text])
    train, rest = tokens[:-4097], tokens[-4097:]

    def draw() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(train) - context, (batch, 1))
        which = starts + torch.arange(context)
        return train[which], train[which + 1]

    name = f"GPT on our docs, {layers} layers of {width}, {context} characters, batch {batch}"
    held_out = rest[:-1].reshape(-1, context), rest[1:].reshape(-1, context)
    return Job(name, GPT(len(codes), context, width, layers), draw, held_out)


@dataclass
class Run:
    """One copy of a network in training: how a step gets its loss, and what steps took."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    peaks: list[int] = field(default_factory=list)  # bytes over what was there when a step began
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, inputs: Tensor, target: Tensor) -> None:
        self.optimizer.zero_grad()
        started = time.perf_counter()
        with reprise.memory.measure() as memory:
            loss = self.loss(inputs, target)
            loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - started)
        self.peaks.append(memory.extra)
        self.losses.append(loss.item())

    @torch.no_grad()
    def held_out(self, inputs: Tensor, target: Tensor) -> tuple[float, float]:
        """Loss and accuracy on what was not trained on."""
        self.model.eval()
        logits = self.model(inputs)
        return loss_of(logits, target).item(), (logits.argmax(-1) == target).float().mean().item()


def largest_difference(one: nn.Module, other: nn.Module) -> Tensor:
    """Between gradients; NaN where one has a NaN."""
    return torch.stack([(a.grad - b.grad).abs().max() for a, b in zip(one.parameters(), other.parameters())]).max()


@dataclass
class Comparison:
    """Two runs in step, and how far apart their gradients ever were."""

    plain: Run
    ours: Run
    difference: float
    same_weights: bool  # parameters and buffers, at the end


def train(job: Job, budget: str, until: float, steps: int | None) -> Comparison:
    """Trains until a time, or for a number of steps: at least 2, since the first also plans."""
    compiled = reprise.compile(copy.deepcopy(job.model), budget, loss=loss_of, plan_seconds=5)
    plain, ours = Run(job.model, lambda x, target: loss_of(job.model(x), target)), Run(compiled, compiled)
    difference = torch.tensor(0.0)
    while len(ours.losses) < max(2, steps or 0) or (steps is None and time.monotonic() < until):
        batch = job.batch()
        state = torch.get_rng_state()
        plain.step(*batch)
        torch.set_rng_state(state)
        ours.step(*batch)
        difference = torch.maximum(difference, largest_difference(plain.model, ours.model))
    states = zip(plain.model.state_dict().values(), ours.model.state_dict().values())
    return Comparison(plain, ours, difference.item(), all(torch.equal(a, b) for a, b in states))


def show(job: Job, result: Comparison) -> None:
    runs = plain, ours = result.plain, result.ours
    peaks = [max(run.peaks) / MIB for run in runs]
    times = [statistics.median(run.seconds[1:]) * 1000 for run in runs]
    held_out = [run.held_out(*job.held_out) for run in runs]
    gradients = sum(p.grad.nbytes for p in plain.model.parameters()) / MIB
    rows = [
        ("peak", [f"{peak:.1f} MiB" for peak in peaks],
         f"{100 * peaks[1] / peaks[0]:.1f} %; over weights and optimizer, {gradients:.1f} MiB gradients included"),
        ("step", [f"{t:.0f} ms" for t in times], f"{100 * times[1] / times[0] - 100:+.1f} %; median"),
        ("first step", [f"{run.seconds[0]:.1f} s" for run in runs], "captures, measures and plans"),
        ("first loss", [f"{run.losses[0]:.4f}" for run in runs], ""),
        ("last loss", [f"{run.losses[-1]:.4f}" for run in runs], ""),
        ("held-out loss", [f"{loss:.4f}" for loss, _ in held_out], "on what was not trained on"),
        ("accuracy", [f"{100 * right:.1f} %" for _, right in held_out], "there"),
    ]
    print(f"{job.name}: {len(ours.losses)} steps\n{'':14}{'plain':>12}{'Reprise':>12}")
    for name, figures, remark in rows:
        print(f"{name:14}{figures[0]:>12}{figures[1]:>12}   {remark}".rstrip())
    print(f"gradients     largest difference {result.difference:g} over {len(ours.losses)} steps")
    verdict = "the same" if result.same_weights else "not the same"
    print(f"weights       {verdict} at the end, buffers too\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="40%", help="share of the plain step's activations, or bytes (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="for all of it (%(default)s)")
    parser.add_argument("--steps", type=int, help="for each network, at least 2, in place of --seconds")
    parser.add_argument("--small", action="store_true", help="tiny networks, to try it")
    parser.add_argument("--report", default="report.html", help="page on the ResNet's plan (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    started, results = time.monotonic(), []
    for share, make in ((0.5, resnet_on_digits), (1.0, gpt_on_our_docs)):
        torch.manual_seed(options.seed)
        job = make(options.small)
        try:
            results.append(train(job, options.budget, started + share * options.seconds, options.steps))
        except reprise.RepriseError as error:
            parser.exit(2, f"{job.name}: {error}\n")
        show(job, results[-1])
    results[0].ours.model.report(options.report)
    print(f"report        {options.report}")
    return 0 if all(result.difference == 0 and result.same_weights for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
