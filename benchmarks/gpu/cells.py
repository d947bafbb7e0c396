# SPDX-License-Identifier: Apache-2.0
"""NASNet-A, AmoebaNet-A and DARTS for CIFAR-10, as DARTS evaluates them, without auxiliary head and drop path.

NASNet-A: Zoph et al., Learning Transferable Architectures for Scalable Image Recognition, CVPR 2018.
AmoebaNet-A: Real et al., Regularized Evolution for Image Classifier Architecture Search, AAAI 2019.
DARTS, second order, and the network around all three: Liu et al., DARTS: Differentiable Architecture Search, ICLR 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Wiring:
    """A cell: states 0 and 1 are its inputs, state 2 + i the sum of the i-th pair; an edge is an op and its state."""

    pairs: str
    joined: tuple[int, ...]  # states that make the output

    def edges(self) -> list[tuple[str, int]]:
        return [(op, int(state)) for op, _, state in (edge.partition("@") for edge in self.pairs.split())]


@dataclass(frozen=True)
class Genotype:
    normal: Wiring
    reduction: Wiring


NASNET = Genotype(
    Wiring("sep5@1 sep3@0  sep5@0 sep3@0  avg@1 skip@0  avg@0 avg@0  sep3@1 skip@1", (2, 3, 4, 5, 6)),
    Wiring("sep5@1 sep7@0  max@1 sep7@0  avg@1 sep5@0  skip@3 avg@2  sep3@2 max@1", (4, 5, 6)))
AMOEBANET = Genotype(
    Wiring("avg@0 max@1  sep3@0 sep5@2  sep3@0 avg@3  sep3@1 skip@1  skip@0 avg@1", (4, 5, 6)),
    Wiring("avg@0 sep3@1  max@0 sep7@2  sep7@0 avg@1  max@0 max@1  lines7@0 sep3@5", (3, 4, 6)))
DARTS = Genotype(
    Wiring("sep3@0 sep3@1  sep3@0 sep3@1  sep3@1 skip@0  skip@0 dil3@2", (2, 3, 4, 5)),
    Wiring("max@0 max@1  skip@2 max@1  max@0 skip@2  skip@2 max@1", (2, 3, 4, 5)))


def _pointwise(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out))


def _depthwise(channels: int, size: int, stride: int, dilation: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, size, stride, dilation * (size // 2), dilation,
                                              groups=channels, bias=False),
                         nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels))


class Halved(nn.Module):
    """Half as many pixels in each direction: one half of the channels from the even ones, one from the odd ones."""

    def __init__(self, channels: int, out: int):
        super().__init__()
        self.relu = nn.ReLU()
        self.even = nn.Conv2d(channels, out // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(channels, out // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x):
        x = self.relu(x)
        return self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], 1))


def _op(name: str, channels: int, stride: int) -> nn.Module:
    kind, size = name.rstrip("0123456789"), int(name[-1]) if name[-1].isdigit() else 3
    if kind == "avg":
        return nn.AvgPool2d(size, stride, 1, count_include_pad=False)
    if kind == "max":
        return nn.MaxPool2d(size, stride, 1)
    if kind == "skip":
        return nn.Identity() if stride == 1 else Halved(channels, channels)
    if kind == "sep":
        return nn.Sequential(_depthwise(channels, size, stride), _depthwise(channels, size, 1))
    if kind == "dil":
        return _depthwise(channels, size, stride, dilation=2)
    assert kind == "lines", name
    return nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, (1, size), (1, stride), (0, size // 2), bias=False),
                         nn.Conv2d(channels, channels, (size, 1), (stride, 1), (size // 2, 0), bias=False),
                         nn.BatchNorm2d(channels))


class Cell(nn.Module):
    def __init__(self, wiring: Wiring, before: int, last: int, channels: int, *, reduces: bool, reduced: bool):
        """`before` and `last`: channels of the outputs of the two cells below; `reduced`: the last one reduces."""
        super().__init__()
        self.first = Halved(before, channels) if reduced else _pointwise(before, channels)
        self.second = _pointwise(last, channels)
        edges = wiring.edges()
        self.ops = nn.ModuleList(_op(op, channels, 2 if reduces and state < 2 else 1) for op, state in edges)
        self.states = [state for _, state in edges]
        self.joined = wiring.joined

    def forward(self, before, last):
        states = [self.first(before), self.second(last)]
        for i in range(0, len(self.ops), 2):
            left, right = (self.ops[j](states[self.states[j]]) for j in (i, i + 1))
            states.append(left + right)
        return torch.cat([states[i] for i in self.joined], 1)


class CellNetwork(nn.Module):
    """Cells in a row, two of them reducing, each on the outputs of the two before it."""

    def __init__(self, genotype: Genotype, channels: int = 36, cells: int = 20, classes: int = 10):
        super().__init__()
        stem = 3 * channels
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, padding=1, bias=False), nn.BatchNorm2d(stem))
        self.cells = nn.ModuleList()
        before, last, reduced = stem, stem, False
        for i in range(cells):
            reduces = i in (cells // 3, 2 * cells // 3)
            channels *= 2 if reduces else 1
            wiring = genotype.reduction if reduces else genotype.normal
            self.cells.append(Cell(wiring, before, last, channels, reduces=reduces, reduced=reduced))
            before, last, reduced = last, len(wiring.joined) * channels, reduces
        self.head = nn.Linear(last, classes)

    def forward(self, x):
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(last.mean((2, 3)))
