# SPDX-License-Identifier: Apache-2.0
"""Traces the operations that eager PyTorch would run, below autograd, on fake tensors.

A tensor is known by its storage and its geometry, not by its Python object: whatever autograd saves,
detaches or unpacks is recognised, and two views of the same shape are one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from . import cudnn, fakes
from ..errors import CaptureError

# Operations that change arguments although their schema does not say so, by the positions of these.
# What they compute does not depend on them while training, so a further run may be given any others.
RUNNING_STATISTICS = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
    "aten::_native_batch_norm_legit": (3, 4),
    "aten::_batch_norm_with_update": (3, 4),
}
# Operations that are handed running statistics and, while training, do not look at them.
_UNREAD = RUNNING_STATISTICS | {
    "aten::native_batch_norm_backward": (3, 4),
    "aten::cudnn_batch_norm_backward": (3, 4),
    "aten::miopen_batch_norm_backward": (3, 4),
    "aten::batch_norm_backward": (3, 4),
}
_TRAINING_ARGUMENTS = {"training", "train", "update"}
# Namespaces whose operations are tagged where they draw random numbers; of others, any that computes may.
_TAGGED = {"aten", "prim", "prims", "torchvision", "reprise"}
ASSERTION = "aten::_assert_async"  # returns nothing, and is run all the same


@dataclass(frozen=True)
class Geometry:
    """How a tensor looks at a storage."""

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugated: bool = False
    negated: bool = False


@dataclass
class Storage:
    bytes: int
    device: torch.device


@dataclass
class Origin:
    """Where in the user's model an operation comes from."""

    module: str = ""
    line: str = ""
    sequence: int | None = None  # autograd's number of the forward operation


@dataclass
class Call:
    """One operation. Arguments are ("t", tensor), ("ts", [tensor or None, …]) or ("c", constant)."""

    func: torch._ops.OpOverload
    arguments: list[tuple[str, Any]]
    results: list[Any]  # tensor, list of tensors, or None
    backward: bool
    origin: Origin
    created: list[int] = field(default_factory=list)  # storages
    mutated: list[int] = field(default_factory=list)  # storages
    scratch: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    plain: torch._ops.OpOverload | None = None  # what eager runs where this writes over its last argument: see reuse.py
    random: bool = False
    replays: int | None = None  # a random call whose numbers it draws again: a checkpointed region is run again
    device: torch.device = torch.device("cpu")

    @property
    def is_view(self) -> bool:
        return not self.created and not self.mutated and not self.random and not self.asserts

    @property
    def asserts(self) -> bool:
        return self.name == ASSERTION

    @property
    def name(self) -> str:
        return self.func._schema.name

    def read(self) -> list[int]:
        """Tensors it is handed, those it does not look at left out."""
        found = []
        for position, (kind, value) in enumerate(self.arguments):
            if position in self.unread:
                continue
            if kind == "t":
                found.append(value)
            elif kind == "ts":
                found.extend(tensor for tensor in value if tensor is not None)
        return found

    def returned(self) -> list[int]:
        flat: list[int] = []
        for result in self.results:
            flat.extend(result if isinstance(result, list) else [result])
        return [tensor for tensor in flat if tensor is not None]


class Region:
    """A region of the model under torch.utils.checkpoint: its random calls, in the order of the first run, and the
    regions within it."""

    def __init__(self) -> None:
        self._drawn: list[int] = []
        self._inner: dict[torch.fx.Node, Region] = {}
        self._runs = 0
        self._next = 0

    def begin(self) -> None:
        self._runs += 1
        self._next = 0

    def inner(self, node: torch.fx.Node) -> Region:
        """The same one in each run."""
        return self._inner.setdefault(node, Region())

    def note_random(self, call: int) -> int | None:
        """The call of the first run that `call` repeats; None in the first run."""
        if self._runs == 1:
            self._drawn.append(call)
            return None
        self._next += 1
        return self._drawn[self._next - 1]


class Tracer(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Geometry] = []
        self.storages: list[Storage] = []
        self.calls: list[Call] = []
        self.constants: list[tuple[int, torch.Tensor]] = []
        self.view_source: dict[int, int] = {}  # tensor → the call that derives it
        self.roots: set[int] = set()  # tensors that are given, not made
        self.backward = False
        self.region: Region | None = None  # the checkpointed region that runs
        self.origin = Origin()
        self.origins: list[tuple[int, Origin]] = []  # by autograd's sequence number
        self._ids: dict[Geometry, int] = {}
        self._storage_ids: dict[int, int] = {}
        self._alive: list[StorageWeakRef] = []  # keeps addresses from being used twice

    def tensor(self, tensor: torch.Tensor) -> int:
        """The number of a tensor, new or known."""
        if tensor.layout is not torch.strided:
            raise CaptureError(f"{self.here()}: a {tensor.layout} tensor can't be planned; make it dense")
        untyped = tensor.untyped_storage()
        storage = self._storage_ids.get(untyped._cdata)
        if storage is None:
            storage = self._storage_ids[untyped._cdata] = len(self.storages)
            self._alive.append(StorageWeakRef(untyped))
            self.storages.append(Storage(untyped.nbytes(), tensor.device))
        geometry = Geometry(storage, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(),
                            tensor.is_conj(), tensor.is_neg())
        number = self._ids.get(geometry)
        if number is None:
            number = self._ids[geometry] = len(self.tensors)
            self.tensors.append(geometry)
        return number

    def given(self, tensor: torch.Tensor) -> int:
        number = self.tensor(tensor)
        self.roots.add(number)
        return number

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = self._positional(func, args, kwargs)
        if cudnn.looks_at_weights(func, given):
            return func(*args, **kwargs)
        if func._schema.name in ("aten::set_", "aten::resize_", "aten::_resize_output_"):
            raise CaptureError(f"{self.here()}: {func} changes a tensor's storage, which can't be planned")
        if func in cudnn.RECURRENT:
            given = cudnn.completed(func, given, self.here())
        arguments = [self._argument(value) for value in given]
        known = len(self.storages)
        out = cudnn.run(func, given) if func in cudnn.RECURRENT else fakes.laid_out(func, given, func(*args, **kwargs))
        number = len(func._schema.returns)
        results = [self._result(value) for value in ([out] if number == 1 else out if number else [])]
        _settle_dtype(func, arguments, out)
        if func is torch.ops.aten.lift_fresh.default:  # returns a constant of the model's, which the step may change
            func = torch.ops.aten.lift_fresh_copy.default
        call = Call(func, arguments, results, self.backward, self._origin())
        call.created = list(range(known, len(self.storages)))
        call.device = next((self.storages[self.tensors[t].storage].device
                            for t in call.returned() + call.read()), torch.device("cpu"))
        self._note_writes(call, given)
        computes = bool(call.created or call.mutated)
        call.random = torch.Tag.nondeterministic_seeded in func.tags or (func.namespace not in _TAGGED and computes)
        generators = [value for value in given if isinstance(value, torch.Generator)]
        if generators:
            is_cudnn = func is torch.ops.aten.random_.default and generators[0].device.type == "cuda"
            why = cudnn.NO_DROPOUT if is_cudnn else f"{func} draws from a generator of its own, which can't be replayed"
            raise CaptureError(f"{self.here()}: {why}")
        if call.is_view:
            self._note_views(call, len(self.calls))
        if call.random and self.region is not None:
            call.replays = self.region.note_random(len(self.calls))
        self.calls.append(call)
        return out

    def _note_views(self, call: Call, index: int) -> None:
        handed = set(call.read())
        for tensor in call.returned():
            if tensor not in handed and tensor not in self.roots:
                self.view_source.setdefault(tensor, index)

    def _note_writes(self, call: Call, given: Sequence[Any]) -> None:
        training = self._is_training(call.func, given)
        for position, argument in enumerate(call.func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                kind, value = call.arguments[position]
                written = [value] if kind == "t" else value if kind == "ts" else []
                call.mutated += [self.tensors[tensor].storage for tensor in written if tensor is not None]
        if training and call.name in _UNREAD:
            call.unread = _UNREAD[call.name]
        if training and call.name in RUNNING_STATISTICS:
            call.scratch = RUNNING_STATISTICS[call.name]
            statistics = [call.arguments[position] for position in call.scratch]
            call.mutated += [self.tensors[value].storage for kind, value in statistics if kind == "t"]
        call.mutated = sorted(set(call.mutated) - set(call.created))
        if torch.Tag.inplace_view in call.func.tags:
            call.mutated = []

    @staticmethod
    def _is_training(func, given: Sequence[Any]) -> bool:
        names = [argument.name for argument in func._schema.arguments]
        flags = [bool(given[names.index(name)]) for name in _TRAINING_ARGUMENTS if name in names]
        return flags[0] if flags else True

    @staticmethod
    def _positional(func, args, kwargs) -> list[Any]:
        given = list(args)
        for argument in func._schema.arguments[len(args):]:
            given.append(kwargs[argument.name] if argument.name in kwargs else argument.default_value)
        return given

    def _argument(self, value: Any) -> tuple[str, Any]:
        if isinstance(value, torch.Tensor):
            return "t", self._known(value)
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return "ts", [None if item is None else self._known(item) for item in value]
        return "c", value

    def _known(self, tensor: torch.Tensor) -> int:
        """A tensor that an operation is handed. One that nobody made is a constant of the model's."""
        from torch._subclasses.fake_tensor import FakeTensor

        known = len(self.storages)
        number = self.tensor(tensor)
        if len(self.storages) > known:
            if isinstance(tensor, FakeTensor):
                raise CaptureError(f"{self.here()}: reads a tensor that was made outside of what is captured")
            self.constants.append((number, tensor))
            self.roots.add(number)
        return number

    def _result(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (list, tuple)):
            return [self.tensor(item) if isinstance(item, torch.Tensor) else None for item in value]
        return None

    def _origin(self) -> Origin:
        if not self.backward:
            return self.origin
        node = torch._C._current_autograd_node()
        if node is None:
            return Origin()
        sequence = node._sequence_nr()
        forward = Origin()
        for number, origin in self.origins:  # few and sorted: the last that began before
            if number > sequence:
                break
            forward = origin
        return Origin(forward.module, forward.line, sequence)

    def here(self) -> str:
        origin = self._origin()
        return origin.line or origin.module or "in the model"


def _settle_dtype(func: torch._ops.OpOverload, arguments: list[tuple[str, Any]], out: Any) -> None:
    """What is made from nothing is of the default type of now, whatever that is when it is made again."""
    if not isinstance(out, torch.Tensor) or any(kind != "c" for kind, _ in arguments):
        return
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == "dtype" and arguments[position] == ("c", None):
            arguments[position] = ("c", out.dtype)
