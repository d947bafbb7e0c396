# SPDX-License-Identifier: Apache-2.0
"""What makes a result again for less than its first time: batch norm, once its statistics are known."""

from __future__ import annotations

from dataclasses import replace

from ..kernels import has_kernel
from .program import Call
from .recorder import RUNNING_STATISTICS

_NORMALIZE = "aten::batch_norm_elemt"


def renewal(call: Call) -> Call | None:
    """A call that makes the first result of `call` from its others. Whether to the last bit, a device has to show."""
    if call.op not in RUNNING_STATISTICS or not has_kernel(_NORMALIZE, call.device):
        return None
    if not call.scratch:  # not in training, or with running statistics that the step makes itself
        return None
    output, mean, scale = call.results[:3]
    if min(output, mean, scale) < 0:
        return None
    x, weight, bias, *_, epsilon = call.arguments
    return replace(call, op=_NORMALIZE, overload="", arguments=[x, weight, bias, mean, scale, epsilon],
                   results=[output], scratch=[], unread=[], bumped=[])
