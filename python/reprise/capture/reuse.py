# SPDX-License-Identifier: Apache-2.0
"""Gradients are computed in the memory of gradients that are read for the last time, where an operation can do that.

Eager takes new memory. The kernels are the same, each element is read before it is written, and so are the bits. Fake
tensors have been seen to err in strides: where a step finds arguments that do not look alike, it takes new memory too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from .joint import Trace
from .tracer import Call, Geometry

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
    moved: dict[int, int] = {}  # a storage that is no longer made → where its tensors lie instead
    renamed: dict[int, int] = {}  # a result → the argument that is written over
    calls = []
    for i, call in enumerate(trace.calls):
        call = replace(call, mutated=sorted({moved.get(storage, storage) for storage in call.mutated}))
        tensor = next((t for t in _overwritable(trace, call) if trace.tensors[t].storage in mine
                       and last_reader[trace.tensors[t].storage] == i), None)
        if tensor is not None:
            result, storage = call.results[0], trace.tensors[tensor].storage
            moved[trace.tensors[result].storage] = moved.get(storage, storage)
            renamed[result] = renamed.get(tensor, tensor)
            call = replace(call, func=_INTO[call.func], arguments=[*call.arguments, ("t", tensor)], created=[],
                           mutated=[moved.get(storage, storage)], plain=call.func)
        calls.append(call)
    return replace(
        trace, calls=[_rename(call, renamed) for call in calls],
        tensors=[replace(tensor, storage=moved.get(tensor.storage, tensor.storage)) for tensor in trace.tensors],
        view_source={tensor: call for tensor, call in trace.view_source.items() if tensor not in renamed},
        gradients=[renamed.get(tensor, tensor) for tensor in trace.gradients])


def _overwritable(trace: Trace, call: Call) -> list[int]:
    """Arguments that the call could write its result over: all are as that is, numbers aside, and no other looks at the
    same memory. Views may be read differently where real strides are others, but for those in plain order."""
    if call.func not in _INTO or not call.backward or len(call.created) != 1:
        return []
    result = trace.tensors[call.results[0]]
    tensors = {value: trace.tensors[value] for kind, value in call.arguments if kind == "t"}
    if any(given.size and (given.size, given.stride) != (result.size, result.stride) for given in tensors.values()):
        return []
    storages = Counter(given.storage for given in tensors.values())
    return [tensor for tensor, given in tensors.items()
            if storages[given.storage] == 1 and replace(given, storage=result.storage) == result
            and (tensor not in trace.view_source or _is_contiguous(given))
            and trace.storages[given.storage].bytes == trace.storages[result.storage].bytes]


def _is_contiguous(tensor: Geometry) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.size), reversed(tensor.stride)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _rename(call: Call, renamed: dict[int, int]) -> Call:
    def name(value: Any) -> Any:
        return [name(item) for item in value] if isinstance(value, list) else renamed.get(value, value)

    return replace(call, arguments=[(kind, value if kind == "c" else name(value)) for kind, value in call.arguments],
                   results=[name(result) for result in call.results])


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
