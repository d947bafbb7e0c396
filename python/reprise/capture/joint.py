# SPDX-License-Identifier: Apache-2.0
"""Traces forward and backward of a graph module as one list of eager's own operations."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Iterable

import torch
from torch.utils.checkpoint import checkpoint
from torch._subclasses.fake_tensor import (DataDependentOutputException, DynamicOutputShapeException,
                                           FakeTensorConverter, FakeTensorMode)

from .. import _torch
from ..errors import CaptureError
from ..words import first_line
from . import cudnn
from .tracer import Call, Geometry, Origin, Region, Storage, Tracer

# Folders whose lines are none of the user's model: PyTorch's layers, and this package.
_NOT_THE_USERS = tuple(f"{folder}{os.sep}" for folder in (
    os.path.dirname(torch.nn.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


@dataclass(frozen=True)
class BackwardCase:
    """What backward is handed: for each differentiable output its gradient's strides, or None."""

    strides: tuple[tuple[int, ...] | None, ...] | None = None  # None: as the outputs'
    autocast: bool = False


@dataclass
class Trace:
    """Forward and backward as they were traced. Tensors, storages and calls are known by their positions."""

    calls: list[Call]
    tensors: list[Geometry]
    storages: list[Storage]
    constants: list[tuple[int, torch.Tensor]]
    view_source: dict[int, int]
    inputs: list[int | None]  # tensors; None: no tensor
    outputs: list[int | None]
    output_constants: list  # what is returned where there is no tensor
    differentiable: list[bool]
    tangents: list[int | None]  # of differentiable outputs, in order
    gradients: list[int | None]  # of inputs
    reached: list[bool]  # by input: does a gradient flow to it, by this backward or another?
    case: BackwardCase

    @property
    def changed(self) -> list[bool]:
        """By input: does forward write to it?"""
        written = {storage for call in self.calls if not call.backward for storage in call.mutated}
        return [tensor is not None and self.tensors[tensor].storage in written for tensor in self.inputs]

    @property
    def device(self) -> torch.device:
        """The one whose memory is planned: an accelerator, where there is one."""
        accelerators = sorted({s.device for s in self.storages if s.device.type != "cpu"}, key=str)
        return accelerators[0] if accelerators else torch.device("cpu")


class _Interpreter(torch.fx.Interpreter):
    """Tells the tracer which line of the user's model runs, and which checkpointed region."""

    def __init__(self, module: torch.fx.GraphModule, tracer: Tracer, given: set[int]):
        """`given`: storages of tensors that the model has or is handed."""
        super().__init__(module)
        self._tracer, self._given = tracer, given

    def run_node(self, node: torch.fx.Node):
        tracer = self._tracer
        if not tracer.backward:  # what runs again is told by the operation whose backward wants it
            tracer.origin = Origin(_module_of(node), _line_of(node), torch.autograd._get_sequence_nr())
            tracer.origins.append((tracer.origin.sequence, tracer.origin))
        if node.target is torch.ops.higher_order.tag_activation_checkpoint:
            (body, *inputs), _ = self.fetch_args_kwargs_from_env(node)
            return self._checkpointed(node, body, inputs)
        try:
            return super().run_node(node)
        except NotImplementedError as error:
            if "no rule registered" not in str(error):
                raise
            raise CaptureError(f"{tracer.here()}: {node.target} can't be planned: take it out of the model, or compile the "
                               "parts beside it") from None

    def _checkpointed(self, node: torch.fx.Node, body: torch.fx.GraphModule, inputs: list):
        """What the region reads may not be changed until it runs again, as in eager, but for what is given, which the
        region itself may change: it does so each time that it runs, as batch norms do. Eager allows more: in what a
        region closes over, which can't be told from its arguments here. What a region within another is handed is made
        anew when the outer one runs again."""
        tracer, tensors = self._tracer, [value for value in inputs if isinstance(value, torch.Tensor)]
        handed = [] if tracer.region is None else [tensor for tensor in tensors if not self._is_given(tensor)]
        region = Region() if tracer.region is None else tracer.region.inner(node)
        where = tracer.here()
        fixed: list[tuple[torch.Tensor, int]] = []  # from the first run on: at which version

        def run(*handed_now):
            now = dict(zip(map(id, handed), handed_now))
            if any(tensor._version != version for tensor, version in fixed):
                raise CaptureError(f"{where}: what a checkpointed region reads is changed in place before the region runs "
                                   "again: change a copy")
            before = [tensor._version for tensor in tensors]
            outer, tracer.region = tracer.region, region
            nesting = _autocast_nesting()
            region.begin()
            try:
                result = _Interpreter(body, tracer, self._given).run(*(now.get(id(value), value) for value in inputs))
            finally:
                tracer.region = outer
                while _autocast_nesting() > nesting:  # it is stopped where nothing more is wanted of it
                    torch.autocast_decrement_nesting()
            fixed[:] = [(tensor, version) for tensor, version in zip(tensors, before)
                        if id(tensor) not in now and (tensor._version == version or not self._is_given(tensor))]
            return result

        return checkpoint(run, *handed, use_reentrant=False, preserve_rng_state=False)

    def _is_given(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._given


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _module_of(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = list(stack.values())[-1][0]
    path = re.sub(r"\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", path)  # L['self']._modules['conv'] → L.self._modules.conv
    path = re.sub(r"\b_modules\.", "", path)
    return re.sub(r"^L\.\w+\.?", "", path)


def _line_of(node: torch.fx.Node) -> str:
    """The innermost line of the user's: 'model.py:42'."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    for file, line in reversed(frames):
        if not file.startswith(_NOT_THE_USERS):
            return f"{os.path.relpath(file) if file.startswith(os.getcwd()) else file}:{line}"
    return ""


class Capture:
    """A graph module and fakes of what it was called with: traces its training step, for one backward or another.

    Inputs may share memory in one call, and in the next they don't. That is part of what is captured where it matters:
    among parameters, and where forward changes one of them. Others are told apart.
    """

    def __init__(self, module: torch.fx.GraphModule, inputs: list):
        self._module = module
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._is_leaf = [not isinstance(value, torch.Tensor) or value.is_leaf for value in inputs]
        self._autocast = _autocast_now()
        self._default_dtype = torch.get_default_dtype()
        places = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        tensors = [inputs[i] for i in places]
        self._matters = [isinstance(tensor, torch.nn.Parameter) for tensor in tensors]
        self._sharing = self._sharing_of(tensors)
        self._fakes = self._faked(inputs, places)
        self.first = self.trace()
        self._matters = [one or self.first.changed[i] for one, i in zip(self._matters, places)]
        if not self.is_for(tensors):
            self._sharing = self._sharing_of(tensors)
            self._fakes = self._faked(inputs, places)
            self.first = self.trace()

    def is_for(self, tensors: list[torch.Tensor]) -> bool:
        """Do these inputs, which are tensors, share memory as those of the capture do?"""
        return self._sharing_of(tensors) == self._sharing

    def has_moved_weights(self, tensors: list[torch.Tensor]) -> bool:
        """Do weights of cuDNN's recurrent layers lie otherwise to each other than when they were captured?"""
        before, now = ({i: (first, offset) for i, first, offset in sharing}
                       for sharing in (self._sharing, self._sharing_of(tensors)))
        position = {tensor: i for i, tensor in enumerate(t for t in self.first.inputs if t is not None)}
        for call in self.first.calls:
            if call.func in cudnn.RECURRENT:
                weights = [position[tensor] for tensor in call.read() if tensor in position]
                if _layout(weights, before) != _layout(weights, now):
                    return True
        return False

    def _sharing_of(self, tensors: list[torch.Tensor]) -> list[tuple[int, int, int]]:
        return _torch.sharing_of(tensors, self._matters)

    def _faked(self, inputs: list, places: list[int]) -> list:
        shared = _torch.sharing_of([inputs[i] for i in places], [True] * len(places))
        apart = {places[i] for i, *_ in shared} - {places[i] for i, *_ in self._sharing}
        fakes = list(inputs)
        for i in places:
            fakes[i] = _fake(self._mode, inputs[i], FakeTensorConverter() if i in apart else None)
        return fakes

    def trace(self, case: BackwardCase = BackwardCase()) -> Trace:
        """Forward under the autocast and default type of the capture, then the backward of `case`."""
        tracer = Tracer()
        try:
            with (self._mode, torch.enable_grad(), torch.autograd.set_detect_anomaly(False), _no_saved_tensor_hooks(),
                  _default_dtype(self._default_dtype)):
                return self._trace(tracer, case)
        except CaptureError as error:  # torch.fx adds to it what the graph looks like
            raise CaptureError(str(error).splitlines()[0]) from None
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise CaptureError(f"{tracer.here()}: {error.func} depends on data, so no fixed plan can run it; "
                               "move it out of the model") from error

    def _trace(self, tracer: Tracer, case: BackwardCase) -> Trace:
        fakes = [_fresh(fake, leaf) if isinstance(fake, torch.Tensor) else fake
                 for fake, leaf in zip(self._fakes, self._is_leaf)]
        inputs = [tracer.given(fake) if isinstance(fake, torch.Tensor) else None for fake in fakes]
        versions = [fake._version if isinstance(fake, torch.Tensor) else 0 for fake in fakes]
        given = {fake.untyped_storage()._cdata for fake in fakes if isinstance(fake, torch.Tensor)}
        with _autocast(self._autocast), tracer:
            returned = _Interpreter(self._module, tracer, given).run(*fakes)
        outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        for fake, version in zip(fakes, versions):
            if isinstance(fake, torch.Tensor) and fake.requires_grad and fake._version != version:
                raise CaptureError("the model changes a parameter, or an input that requires grad, in place "
                                   f"(of shape {tuple(fake.shape)}): that can't be planned")

        differentiable = [isinstance(out, torch.Tensor) and out.requires_grad for out in outputs]
        sources = [out for out, wanted in zip(outputs, differentiable) if wanted]
        handed = _tangents(sources, case)
        tangents = [None if tangent is None else tracer.given(tangent) for tangent in handed]
        return Trace(
            calls=tracer.calls, tensors=tracer.tensors, storages=tracer.storages, constants=tracer.constants,
            view_source=tracer.view_source, inputs=inputs,
            outputs=[tracer.tensor(out) if isinstance(out, torch.Tensor) else None for out in outputs],
            output_constants=[None if isinstance(out, torch.Tensor) else out for out in outputs],
            differentiable=differentiable, tangents=tangents,
            gradients=_gradients(tracer, fakes, sources, handed, case), reached=_reached(fakes, sources),
            case=BackwardCase(tuple(None if t is None else _strides_of(t) for t in handed), case.autocast))


def nodes_behind(tensors: Iterable[torch.Tensor]) -> set[torch.autograd.graph.Node]:
    """Those that backward from these goes through."""
    waiting, seen = [tensor.grad_fn for tensor in tensors], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return seen


def leaves_of(nodes: set[torch.autograd.graph.Node]) -> set[int]:
    """The ids of tensors that backward through these gives gradients to."""
    return {id(node.variable) for node in nodes if hasattr(node, "variable")}


def _reached(fakes: list, sources: list[torch.Tensor]) -> list[bool]:
    """Not where forward only looks at what is detached from an input: eager's graph ends there."""
    nodes = nodes_behind(sources)
    leaves = leaves_of(nodes) | set(map(id, sources))
    return [isinstance(fake, torch.Tensor) and (fake.grad_fn in nodes or id(fake) in leaves) for fake in fakes]


def _gradients(tracer: Tracer, fakes: list, sources: list, tangents: list, case: BackwardCase) -> list[int | None]:
    """Traces backward; the gradient of each input, or None."""
    gradients: list[int | None] = [None] * len(fakes)
    wanted = [i for i, fake in enumerate(fakes) if isinstance(fake, torch.Tensor) and fake.requires_grad]
    used = [(source, tangent) for source, tangent in zip(sources, tangents) if tangent is not None]
    if not used or not wanted:
        return gradients
    tracer.backward = True
    with _autocast([(device, case.autocast, dtype) for device, _, dtype in _autocast_now()]), tracer:
        try:
            found = torch.autograd.grad([source for source, _ in used], [fakes[i] for i in wanted],
                                        [tangent for _, tangent in used], allow_unused=True)
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            raise CaptureError(f"backward can't be captured: {first_line(error)}") from error
    for i, gradient in zip(wanted, found):
        gradients[i] = None if gradient is None else tracer.tensor(gradient)
    return gradients


def _layout(positions: list[int], sharing: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Of those that lie in one storage with others: in which, and how far from its first."""
    there = [sharing[i] for i in positions if i in sharing]
    begins: dict[int, int] = {}
    for first, offset in there:
        begins.setdefault(first, offset)
    numbers = {first: number for number, first in enumerate(begins)}
    return [(numbers[first], offset - begins[first]) for first, offset in there]


def _fake(mode: FakeTensorMode, value: torch.Tensor, own: FakeTensorConverter | None) -> torch.Tensor:
    """`own`: it is to share no memory with other fakes."""
    fake = mode.from_tensor(value, static_shapes=True) if own is None else own.from_real_tensor(mode, value)
    return fake if fake.requires_grad == value.requires_grad and fake.is_leaf else (
        fake.detach().requires_grad_(value.requires_grad))


def _fresh(fake: torch.Tensor, is_leaf: bool) -> torch.Tensor:
    """One that autocast's cache of casts does not know. What is no leaf stays none: the cache looks at that."""
    leaf = fake.detach().requires_grad_(fake.requires_grad)
    return leaf if is_leaf else leaf.clone()


def _autocast_now() -> list[tuple[str, bool, torch.dtype]]:
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices]


@contextmanager
def _autocast(states: list[tuple[str, bool, torch.dtype]]):
    with ExitStack() as stack:
        for device, enabled, dtype in states:
            if (enabled, dtype) != (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)):
                stack.enter_context(torch.autocast(device, enabled=enabled, dtype=dtype))
        yield


@contextmanager
def _default_dtype(dtype: torch.dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _no_saved_tensor_hooks():
    """Hooks of the caller's, those of torch.utils.checkpoint for one, are not part of the model."""
    hooks, autograd = [], torch._C._autograd
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


def _strides_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that matter: along a dimension of one element any will do."""
    return tuple(1 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride()))


def _tangents(sources: list[torch.Tensor], case: BackwardCase) -> list[torch.Tensor | None]:
    """Fresh fakes: dense where the output is, else as told. A stride of 0 says expanded."""
    if case.strides is None:
        return [torch.empty_like(source, requires_grad=False) for source in sources]
    return [None if strides is None
            else torch.empty_strided(source.shape, strides, dtype=source.dtype, device=source.device)
            for source, strides in zip(sources, case.strides, strict=True)]
