#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the executor adds to an operation: a chain of small ones by plan, against direct C++ calls of the same.

Both run in one process, alternating; the figures are medians of microseconds an operation.
"""

import statistics
import sys
import time

import torch
from torch.utils import cpp_extension

import reprise

CHAIN = 6000  # so many that what a step costs once does not count
DIRECT = """
#include <torch/extension.h>
double run(at::Tensor x, int64_t times) {
  at::AutoDispatchBelowADInplaceOrView below;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < times; ++i) x = at::neg(x);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
"""


class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        x = x * self.scale
        for _ in range(CHAIN):
            x = -x
        return x


def main() -> int:
    torch.set_num_threads(1)
    direct = cpp_extension.load_inline("reprise_direct", DIRECT, functions=["run"])
    model = reprise.compile(Chain(), "100%", costs="flops")
    x = torch.ones(16)
    for _ in range(3):
        model(x).sum().backward()
    ours, theirs = [], []
    for _ in range(30):
        start = time.perf_counter()
        out = model(x)
        ours.append((time.perf_counter() - start) / CHAIN * 1e6)
        del out
        theirs.append(direct.run(x, CHAIN) / CHAIN * 1e6)
    mine, reference = statistics.median(ours), statistics.median(theirs)
    print(f"direct call {reference:.2f} µs, by plan {mine:.2f} µs: {mine - reference:+.2f} µs an operation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
