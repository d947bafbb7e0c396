# SPDX-License-Identifier: Apache-2.0
"""Gradients are computed in the memory of gradients that are read for the last time, where an operation can do that.

Eager takes new memory. The kernels are the same, each element is read before it is written, and so are the bits.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from .joint import Trace

aten = torch.ops.aten

# Operations that compute each element, or each row, from its like: how to say where their result goes.
_INTO = {
    aten.add.Tensor: aten.add.out,
    aten.mul.Tensor: aten.mul.out,
    aten.div.Tensor: aten.div.out,
    aten.neg.default: aten.neg.out,
    aten.where.self: aten.where.self_out,
    aten.threshold_backward.default: aten.threshold_backward.grad_input,
    aten.leaky_relu_backward.default: aten.leaky_relu_backward.grad_input,
    aten.hardtanh_backward.default: aten.hardtanh_backward.grad_input,
    aten.elu_backward.default: aten.elu_backward.grad_input,
    aten.gelu_backward.default: aten.gelu_backward.grad_input,
    aten.silu_backward.default: aten.silu_backward.grad_input,
    aten.tanh_backward.default: aten.tanh_backward.grad_input,
    aten.sigmoid_backward.default: aten.sigmoid_backward.grad_input,
    aten._softmax_backward_data.default: aten._softmax_backward_data.out,
    aten._log_softmax_backward_data.default: aten._log_softmax_backward_data.out,
}


def reuse(trace: Trace) -> Trace:
    """The trace with such operations writing over an argument."""
    last_reader = _last_readers(trace)
    held = {trace.tensors[t].storage for t in [*trace.outputs, *trace.gradients] if t is not None}
    mine = {storage for call in trace.calls if call.backward for storage in call.created} - held - _seen_twofold(trace)
    calls, view_source = list(trace.calls), dict(trace.view_source)
    moved: dict[int, int] = {}  # a storage that is no longer made → where its tensors lie instead

    for i, call in enumerate(trace.calls):
        if call.func not in _INTO or not call.backward or len(call.created) != 1:
            continue
        result = trace.tensors[call.results[0]]
        for tensor in dict.fromkeys(value for kind, value in call.arguments if kind == "t"):
            given = trace.tensors[tensor]
            if (given.storage in mine and last_reader[given.storage] == i
                    and replace(given, storage=result.storage) == result
                    and trace.storages[given.storage].bytes == trace.storages[result.storage].bytes):
                moved[result.storage] = moved.get(given.storage, given.storage)
                calls[i] = replace(call, func=_INTO[call.func], arguments=[*call.arguments, ("t", tensor)],
                                   created=[], mutated=[moved[result.storage]], reuses=True)
                view_source.pop(call.results[0], None)  # it is where all its views come from
                break
    tensors = [replace(tensor, storage=moved.get(tensor.storage, tensor.storage)) for tensor in trace.tensors]
    return replace(trace, tensors=tensors, calls=calls, view_source=view_source)


def _seen_twofold(trace: Trace) -> set[int]:
    """Storages that are looked at as of several types, complex and real for one."""
    types: dict[int, torch.dtype] = {}
    return {tensor.storage for tensor in trace.tensors
            if types.setdefault(tensor.storage, tensor.dtype) != tensor.dtype}


def _last_readers(trace: Trace) -> dict[int, int]:
    """By storage: the last call that reads or changes it. A view reads nothing."""
    last: dict[int, int] = {}
    for i, call in enumerate(trace.calls):
        if not call.is_view:
            last |= {trace.tensors[tensor].storage: i for tensor in call.read()}
            last |= {storage: i for storage in call.mutated}
    return last
