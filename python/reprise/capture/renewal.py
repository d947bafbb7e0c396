# SPDX-License-Identifier: Apache-2.0
"""What makes a result again for less than its first time: batch norm, once its statistics are known."""

from __future__ import annotations

import torch

from .program import Call
from .recorder import RUNNING_STATISTICS

_NORMALIZE = "aten::batch_norm_elemt"


def renewal(call: Call) -> Call | None:
    """A call that makes the first result of `call` from its others. Whether to the last bit, a device has to show."""
    if call.op not in RUNNING_STATISTICS or not call.scratch or not _can_normalize(call.device):
        return None
    output, mean, scale = call.results[:3]
    if min(output, mean, scale) < 0:
        return None
    x, weight, bias, *_, epsilon = call.arguments
    return Call(_NORMALIZE, "", None, [x, weight, bias, mean, scale, epsilon], [output], [], [], [], False, -1,
                call.device, call.where)


def _can_normalize(device: torch.device) -> bool:
    key = torch._C._dispatch_key_for_device(device.type)
    return torch._C._dispatch_has_kernel_for_dispatch_key(_NORMALIZE, key)
