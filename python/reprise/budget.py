# SPDX-License-Identifier: Apache-2.0
"""Budgets as users put them: bytes, a size with its unit, a share, "min" or "auto"."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from . import _core
from .errors import BudgetError


@dataclass(frozen=True)
class Budget:
    """One of: bytes that the device may hold; a share of the plain step's activations; the smallest there is."""

    text: str
    bytes: int | None = None
    share: Fraction | None = None

    @property
    def is_smallest(self) -> bool:
        return self.bytes is None and self.share is None


def parse_budget(budget: int | str, free: int) -> Budget:
    """`free` is what "auto" means: bytes that the device could hold."""
    if isinstance(budget, bool) or not isinstance(budget, (int, str)):
        raise BudgetError(f"budget {budget!r}: want bytes (6442450944), a size ('6GiB'), a share ('50%'), 'min' or "
                          "'auto'")
    text = str(budget).strip()
    if text == "auto":
        return Budget(text, bytes=free)
    if text == "min":
        return Budget(text)
    try:
        found = _core.parse_budget(text, 1)
        if text.endswith("%"):
            share = Fraction(text[:-1].strip()) / 100
            if share <= 0:
                raise BudgetError(f"budget '{text}' is nothing: want more than 0 %")
            return Budget(text, share=share)
    except _core.InputError as error:
        raise BudgetError(f"{error} (or 'auto': what is free on the device)") from None
    if found <= 0:
        raise BudgetError(f"budget {text} is nothing: want a number of bytes above 0")
    return Budget(text, bytes=found)
