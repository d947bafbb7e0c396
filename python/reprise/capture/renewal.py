# SPDX-License-Identifier: Apache-2.0
"""What makes a result again for less than its first time: batch norm, once its statistics are known, with what follows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable

from ..kernels import has_kernel
from .program import Call, Constant
from .tracer import RUNNING_STATISTICS, Geometry

_NORMALIZE = "reprise::normalize"  # see runtime/normalize.h
_FOLDED = 1 << 15  # numbers of a channel up to which cuDNN folds its factors into one, as seen on an H200


def renewal(call: Call, following: list[Call], look: Callable[[int], Geometry]) -> tuple[Call, int] | None:
    """A call that makes the first result of `call` from its others, and how many of those that follow it in its op it
    makes up for. Whether to the last bit, a device has to show. `look`: of a slot."""
    if call.op not in RUNNING_STATISTICS or not has_kernel(_NORMALIZE, call.device):
        return None
    if not call.scratch:  # not in training, or with running statistics that the step makes itself
        return None
    output, mean, scale = call.results[:3]
    if min(output, mean, scale) < 0:
        return None
    x, weight, bias, *_ = call.arguments
    addend, is_rectified, tail = -1, False, 0
    for other in following:
        if addend < 0 and _adds_to(output, other) and _are_alike(look(output), look(other.arguments[1])):
            addend = other.arguments[1]
        elif other.op == "aten::relu_" and other.arguments == [output]:
            is_rectified = True
        else:
            break
        tail += 1
        if is_rectified:
            break
    size = look(x).size
    is_folded = call.op == "aten::cudnn_batch_norm" and math.prod(size) // size[1] <= _FOLDED
    arguments = [x, weight, bias, mean, scale, addend, Constant(is_rectified), Constant(is_folded)]
    return replace(call, op=_NORMALIZE, overload="", arguments=arguments, results=[output], scratch=[], unread=[],
                   bumped=[]), tail


def _adds_to(output: int, call: Call) -> bool:
    """Does it add another tensor, as it is?"""
    if call.op != "aten::add_" or call.arguments[0] != output:
        return False
    _, other, factor = call.arguments
    return isinstance(other, int) and other != output and factor == Constant(1)


def _are_alike(one: Geometry, other: Geometry) -> bool:
    return replace(one, storage=other.storage) == other
