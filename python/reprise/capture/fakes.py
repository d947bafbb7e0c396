# SPDX-License-Identifier: Apache-2.0
"""Results of fake tensors that do not lie as real ones do, laid out anew: whether eager views or copies them depends on
it."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten

# Operations whose first result lies in plain order or in channels_last, by the argument that this depends on.
_ON_CPU = {aten.native_batch_norm.default: 0, aten.native_batch_norm_backward.default: 1}
# Those whose results lie in plain order.
_CONTIGUOUS = {aten.rrelu_with_noise.default, aten.rrelu_with_noise_functional.default,
               aten.rrelu_with_noise_backward.default}


def laid_out(func, given: Sequence[Any], out: Any) -> Any:
    """What `func` returned, as it lies on its device."""
    if func in _ON_CPU and given[0].device.type == "cpu":
        first, *others = out
        if first is None:
            return out
        return torch.empty_like(first, memory_format=suggest_memory_format(given[_ON_CPU[func]])), *others
    if func in _CONTIGUOUS:
        results = out if isinstance(out, tuple) else (out,)
        results = tuple(torch.empty_like(one, memory_format=torch.contiguous_format) for one in results)
        return results if isinstance(out, tuple) else results[0]
    return out
