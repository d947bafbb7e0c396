# SPDX-License-Identifier: Apache-2.0
"""Numbers as the program `reprise` words them: bytes, costs, shares, counts."""

from __future__ import annotations

from . import _core

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
COST_UNITS = {"ns": ("ns", "us", "ms", "s", "ks"), "flops": ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP")}
bytes_words = _core.to_words


def unit_for(most: float, factor: int, units: tuple[str, ...]) -> tuple[int, str]:
    """The size and name of the unit in which `most` is a number that a person reads; 999.5 is 1.00 of the next."""
    size, number = 1, 0
    while most >= 0.9995 * factor * size and number + 1 < len(units):
        size, number = size * factor, number + 1
    return size, units[number]


def cost_words(cost: int, unit: str) -> str:
    if unit not in COST_UNITS:
        return f"{cost:,}"
    size, name = unit_for(cost, 1000, COST_UNITS[unit])
    return f"{cost} {name}" if size == 1 else f"{_three_digits(cost / size)} {name}"


def percent(fraction: float) -> str:
    """Of what is added: "+4.36 %"."""
    points = 100 * fraction
    size = abs(points)
    decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 4
    return "0 %" if points == 0 else f"{points:+.{decimals}f} %"


def share(part: int, whole: int) -> str:
    points = 100 * part / whole if whole else 0
    return f"{points:.{0 if points >= 9.95 else 1}f} %"


def first_line(message: object) -> str:
    return str(message).strip().partition("\n")[0]


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def fact(label: str, amount: str, remark: str) -> str:
    return f"{label:8}{amount:>11}   {remark}".rstrip()


def _three_digits(number: float) -> str:
    return f"{number:.{0 if number >= 99.95 else 1 if number >= 9.995 else 2}f}"
