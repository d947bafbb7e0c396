# SPDX-License-Identifier: Apache-2.0
"""A training step as calls on slots: what reprise._torch.Program is made from. runtime/program.h says the same in C++.

A slot is where a tensor lies while the step runs; -1 stands for no tensor, value or call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple

import torch


@dataclass(frozen=True)
class Constant:
    """An argument that is no tensor."""

    value: Any


Argument = int | list[int] | Constant  # a slot, slots, or what is handed over as it is


@dataclass
class Call:
    """One operation."""

    op: str
    overload: str
    plain: str | None  # the overload that makes a new tensor, of one that writes over its last argument
    arguments: list[Argument]
    results: list[int | list[int]]  # slots; -1: dropped
    scratch: list[int]  # arguments that only its first run may write to
    unread: list[int]  # arguments whose bytes do not matter to it
    bumped: list[int]  # arguments, inputs of the step, that it changes for good
    random: bool
    replays: int  # the call whose random numbers it draws again
    device: torch.device
    where: str  # for people
    renewal: int = -1  # the call that makes its first result again, from its others …
    tail: list[int] = field(default_factory=list)  # … and does what these do, which follow it in its op

    def read(self) -> list[int]:
        """The slots of its arguments."""
        return [slot for argument in self.arguments for slot in slots_of(argument)]

    def made(self) -> list[int]:
        """The slots of its results, those that are dropped among them."""
        return [slot for result in self.results for slot in (result if isinstance(result, list) else [result])]

    def filled(self, tensor: Callable[[int], Any]) -> list:
        """Its arguments with `tensor(slot)` in place of slots."""
        def fill(argument: Argument):
            if isinstance(argument, Constant):
                return argument.value
            if isinstance(argument, list):
                return [fill(slot) for slot in argument]
            return None if argument < 0 else tensor(argument)
        return [fill(argument) for argument in self.arguments]


def slots_of(argument: Argument) -> list[int]:
    if isinstance(argument, Constant):
        return []
    return [slot for slot in (argument if isinstance(argument, list) else [argument]) if slot >= 0]


class Takeover(NamedTuple):
    """An output that is written over an input: `target` begins as the bytes of `source`."""

    value: int  # of the input
    source: int
    target: int


@dataclass
class Operation:
    """An op of the graph."""

    calls: list[int]
    takeovers: list[Takeover]
    made: list[int]  # values
    read: list[int]  # values that are not resident


@dataclass
class Program:
    """Calls, grouped into the ops of a graph, whose numbers values and operations have."""

    calls: list[Call]
    operations: list[Operation]
    slots_of_value: list[list[int]]
    view_of_slot: list[int]  # the call that derives a slot from another of its value
    value_of_slot: list[int]  # -1: resident
    outside: int  # the op between forward and backward, which the caller runs
    inputs: list[int]
    constants: list[tuple[int, torch.Tensor]]
    fresh: list[int]  # constants that the step changes
    remembered: list[int]  # inputs that forward reads and changes
    outputs: list[int]
    differentiable: list[bool]  # by output
    tangents: list[int]  # of the outputs that are differentiable
    gradients: list[int]  # by input
    reached: list[bool]  # by input: does a gradient flow to it, by this backward or another?
