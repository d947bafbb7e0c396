# SPDX-License-Identifier: Apache-2.0
"""cuDNN's recurrent layers on fake tensors, where PyTorch errs or has no answer.

The weights of a layer lie in one storage, in the order that cuDNN wants. To find out, PyTorch looks at addresses,
which fake tensors do not have; and backward, whose gradients lie in one storage as well, it can't fake at all.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import CaptureError

_FORWARD, _BACKWARD = torch.ops.aten._cudnn_rnn.default, torch.ops.aten._cudnn_rnn_backward.default
RECURRENT = {_FORWARD, _BACKWARD}
NO_DROPOUT = ("cuDNN's dropout between the layers of an RNN can't be replayed; run it under "
              "torch.backends.cudnn.flags(enabled=False), or put nn.Dropout between RNNs")


def looks_at_weights(func, given: list[Any]) -> bool:
    """A tensor of no elements is made to look at a whole storage."""
    return func is torch.ops.aten.set_.source_Storage and given[0].numel() == 0


def completed(func, given: list[Any], here: str) -> list[Any]:
    """The arguments as eager passes them: forward is handed all weights as one tensor."""
    named = _named(func, given)
    if named["dropout_state"] is not None:
        raise CaptureError(f"{here}: {NO_DROPOUT}")
    if func is _FORWARD and named["weight_buf"] is None:
        first, *others = named["weight"]
        storage = first.untyped_storage()
        if any(weight.untyped_storage()._cdata != storage._cdata for weight in others):
            raise CaptureError(f"{here}: the weights of an RNN do not lie in one piece; call its flatten_parameters()")
        elements = storage.nbytes() // first.element_size()
        named["weight_buf"] = first.detach().as_strided((elements,), (1,), 0)
    return list(named.values())


def run(func, given: list[Any]):
    """As func(*given). With the batch first, cuDNN works on what is transposed, and so are its results."""
    named = _named(func, given)
    is_transposed = named["batch_first"] and not named["batch_sizes"]

    def laid_out(like: torch.Tensor) -> torch.Tensor:
        if not is_transposed:
            return torch.empty_like(like, memory_format=torch.contiguous_format)
        return like.new_empty(like.transpose(0, 1).shape).transpose(0, 1)

    if func is _FORWARD:
        output, *others = func(*given)
        return laid_out(output), *others
    flat = torch.empty_like(named["weight_buf"])
    weights = [flat.as_strided(w.size(), w.stride(), w.storage_offset()) for w in named["weight"]]
    wanted = named["output_mask"]
    states = [torch.empty_like(named[name]) if is_wanted and named[name] is not None else None
              for name, is_wanted in zip(("hx", "cx"), wanted[1:3])]
    return laid_out(named["input"]) if wanted[0] else None, *states, weights if wanted[3] else []


def _named(func, given: list[Any]) -> dict[str, Any]:
    return {argument.name: value for argument, value in zip(func._schema.arguments, given, strict=True)}
