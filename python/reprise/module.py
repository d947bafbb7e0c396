# SPDX-License-Identifier: Apache-2.0
"""reprise.compile: a module that trains inside a byte budget."""

from __future__ import annotations

import copy
import copyreg
import os
import weakref
from collections import OrderedDict
from typing import Any, Callable

import torch
from torch import nn
from torch.nn.modules.module import (_global_backward_hooks, _global_backward_pre_hooks, _global_forward_hooks,
                                     _global_forward_pre_hooks)

from ._core import Graph
from .at_hand import of_function
from .capture.joint import leaves_of, nodes_behind
from .dynamo import check_devices, dynamo_call, nothing_captured, refuse_distributed, split_target, under_dynamo
from .errors import CaptureError, RepriseError
from .facts import Facts
from .graphs import GraphMemories
from .joined import joined
from .session import Options, Session


def compile(model: nn.Module, budget: int | str = "auto", *, loss: Callable | None = None, costs: str = "profile",
            executor: str | None = None, plan_seconds: float | None = 5.0, plan_iterations: int | None = None,
            seed: int = 0, threads: int = 1, shapes: int = 8, plan: str | os.PathLike | None = None,
            exact: bool = False) -> nn.Module:
    """The module, trained inside `budget`: the same parameters, state_dict, class and methods.

    budget: bytes that the device may hold from forward to the end of backward ("6GiB"); a share of the plain step's
        activations ("50%"); "min", or "auto": what is free.
    loss: where given, the module is called as model(*inputs, target), returns loss(output, target), and the loss is
        planned with it.
    costs: "profile" times each distinct operation on the device; "flops" estimates, and runs nothing.
    executor: None: CUDA graphs on a GPU where that can be, else C++; "native": never graphs; "cuda_graph": the model has
        to be on a GPU; "fx": two FX graphs, to read and to step through.
    plan_seconds, plan_iterations, seed, threads: how to look for a plan.
    shapes: how many shapes of inputs keep their plans.
    plan: a plan file, as `model.plan` gives it, to run in place of looking for one.
    exact: on a GPU, nothing runs in parts of the batch, so that results are those of eager's kernels, bit for bit;
        deterministic algorithms imply it.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"reprise.compile wants an nn.Module, not {type(model).__name__}")
    refuse_distributed(model)
    if isinstance(shapes, bool) or not isinstance(shapes, int) or shapes < 1:
        raise ValueError(f"shapes={shapes!r}: want a whole number of at least 1")
    if isinstance(loss, type):
        raise TypeError(f"the loss is the class {loss.__name__}: want one of its objects, {loss.__name__}()")
    model = plain_of(model)
    options = Options(budget, costs, executor, plan_seconds=plan_seconds, plan_iterations=plan_iterations, seed=seed,
                      threads=threads, exact=exact, name=type(model).__name__,
                      plan_file=None if plan is None else os.fspath(plan))
    return _face(_State(model, options, loss, shapes))


def _face(state: _State) -> nn.Module:
    """A module that shares the plain one's __dict__ and calls through `state`."""
    compiled = object.__new__(_class_of(type(state.plain)))
    object.__setattr__(compiled, "__dict__", state.plain.__dict__)
    object.__setattr__(compiled, "_reprise_state", state)
    return compiled


def plain_of(model: nn.Module) -> nn.Module:
    """The module that a compiled one stands for, or the module itself."""
    return model._reprise_state.plain if isinstance(model, _Compiled) else model


_classes: dict[type, type] = {}


def _class_of(plain: type) -> type:
    """A subclass that calls through Reprise. Looks like the class it is made from."""
    if plain not in _classes:
        _classes[plain] = type(plain.__name__, (_Compiled, plain), {
            "__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__})
    return _classes[plain]


class _Compiled:
    """What a compiled module does on its own; all else is the plain module's."""

    __slots__ = ("_reprise_state",)  # beside the plain module's __dict__, which it shares

    def __call__(self, *args, **kwargs):
        state = getattr(self, "_reprise_state", None)  # none: made by the class itself, not by compile
        return super().__call__(*args, **kwargs) if state is None else state(*args, **kwargs)

    @property
    def plan(self):
        """The plan of the step that ran last, as `reprise-plan` JSON; None before the first."""
        graph, steps = self._reprise_state.whole
        return None if graph is None else graph.write_plan(steps, "auto")

    @property
    def graph(self):
        """The captured step as `reprise-graph` JSON; None before the first."""
        graph, _ = self._reprise_state.whole
        return None if graph is None else graph.to_json()

    def report(self, path=None):
        """What was decided and what it took; with a path, an HTML page of it as well."""
        from .report import report

        return report(self._reprise_state, path)

    def __reduce_ex__(self, protocol):
        """As the plain module: what is loaded knows nothing of Reprise."""
        make, args, *rest = self._reprise_state.plain.__reduce_ex__(protocol)
        if make is copyreg.__newobj__:  # pickle would insist on this object's own class
            make, args = copyreg._reconstructor, (args[0], object, None)
        return make, args, *rest

    def __deepcopy__(self, memo):
        state = self._reprise_state
        return _face(_State(copy.deepcopy(state.plain, memo), state.options, state.loss, state.shapes))


class _State:
    """How a compiled module runs: a Dynamo cache and a session for each shape of its inputs, and for what is frozen."""

    def __init__(self, plain: nn.Module, options: Options, loss: Callable | None, shapes: int):
        self.plain = plain
        self.options = options
        self.loss = loss
        self.shapes = shapes
        self._entries: OrderedDict[Any, tuple[Callable, Session]] = OrderedDict()
        self._graph_memories = GraphMemories()
        self.last: Session | None = None
        weakref.finalize(self, _leave, self._entries).atexit = False  # Dynamo never lets go of what it compiled

    @property
    def facts(self) -> list[Facts]:
        """Of the graphs that ran in the last step, in order. The first's are those of the whole step."""
        if self.last is None:
            return []
        ran = self.last.ran if self.last.is_several else self.last.ran[-1:]  # one graph, however often it ran
        return [subgraph.facts for subgraph in ran]

    @property
    def handed(self) -> list[weakref.ref]:
        """Tensors that captured graphs were called with in the last step."""
        return [] if self.last is None else self.last.handed.tensors or []

    @property
    def whole(self) -> tuple[Graph | None, list[int]]:
        """The graph of the last step, and its plan."""
        if not self.facts:
            return None, []
        return joined([(facts.step.graph_of(facts.plan), facts.plan.steps) for facts in self.facts])

    @property
    def plain_graph(self) -> Graph:
        """That of the last step, with all operations run as usual."""
        return joined([(facts.step.graph, facts.step.graph.base_run) for facts in self.facts])[0]

    def __call__(self, *args, **kwargs):
        if not self.plain.training or not torch.is_grad_enabled():
            return self._plainly(*args, **kwargs)
        self._refuse_hooks()
        if torch.autograd.forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None:
            raise RepriseError("forward-mode and torch.func derivatives are not supported: take them of the plain "
                               "module")
        if self.loss is not None and len(args) < 2 and "target" not in kwargs:
            raise RepriseError("with loss= a training step is called as model(*inputs, target): the target is missing")
        key = (_key_of(args, kwargs), self._are_trained(), (*_global_forward_hooks, *_global_forward_pre_hooks))
        if key not in self._entries:
            check_devices(self.plain, args, kwargs)
            for _, other in self._entries.values():  # its first step runs as it is, and their graphs would lie beside it
                other.release()
            session = Session(self.options, self._graph_memories)
            self._entries[key] = (dynamo_call(self.plain, self.loss, session), session)
            while len(self._entries) > self.shapes:
                self._entries.popitem(last=False)[1][1].release()
        self._entries.move_to_end(key)
        _release_left()
        run, session = self._entries[key]
        self.last, captures, session.handed.tensors = session, session.captures, []
        try:
            result = under_dynamo(run, args, kwargs)
        except RepriseError:
            raise
        except BaseException:  # Dynamo does not look at code again that raised while it looked
            self._entries.pop(key, None)
            raise
        handed = session.handed.tensors
        if not handed and not session.is_trivial:
            self._entries.pop(key, None)
            raise nothing_captured(self.plain)
        if session.captures > captures or not handed:
            self._refuse_plain_parts(result, handed, key)
        return result

    def _refuse_plain_parts(self, result, handed: list[weakref.ref], key) -> None:
        """Where Dynamo breaks inside of torch's own code, it leaves the rest of that to eager."""
        tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        plainly = leaves_of(nodes_behind(tensors)) - {id(ref()) for ref in handed}
        plain = [name for name, parameter in self.plain.named_parameters() if id(parameter) in plainly]
        if plain:
            self._entries.pop(key, None)  # the next call is looked at again
            more = f" and {len(plain) - 1} more" if len(plain) > 1 else ""
            raise CaptureError(f"a part of the model can't be captured and would train plainly: that of '{plain[0]}'"
                               f"{more} (TORCH_LOGS=graph_breaks says where the graph breaks)")

    def _are_trained(self) -> tuple[bool, ...]:
        """By parameter, the loss's too. Dynamo of torch 2.11 does not see one that is frozen no longer."""
        others = [] if self.loss is None else of_function(self.loss).modules
        return tuple(parameter.requires_grad for module in (self.plain, *others) for part in module.modules()
                     for parameter in part._parameters.values() if parameter is not None)

    def _refuse_hooks(self) -> None:
        if _global_backward_hooks or _global_backward_pre_hooks:
            raise CaptureError("a backward hook of all modules (register_module_full_backward_hook) can't be captured; "
                               "remove it, or hook the parameters")
        for hooked in self.plain.modules():  # at each step: names are looked for where they are wanted
            if hooked._backward_hooks or hooked._backward_pre_hooks:
                name = next(name for name, module in self.plain.named_modules() if module is hooked)
                raise CaptureError(f"'{name or type(self.plain).__name__}' has a full backward hook, which can't be "
                                   "captured; remove it, or hook its parameters")

    def _plainly(self, *args, **kwargs):
        if self.loss is None or (len(args) < 2 and "target" not in kwargs):
            return self.plain(*args, **kwargs)
        args, kwargs, target = split_target(args, kwargs)
        return self.loss(self.plain(*args, **kwargs), target)


_left: list[Session] = []  # of modules that are gone, still to be released


def _leave(entries: dict[Any, tuple[Callable, Session]]) -> None:
    _left.extend(session for _, session in entries.values())
    _release_left()


def _release_left() -> None:
    """Garbage may be collected while something is traced or recorded: it would become part of that, and is left to the
    next step of any module."""
    is_recording = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    while _left and not is_recording and not torch._C._len_torch_dispatch_stack():
        try:
            session = _left.pop()
        except IndexError:  # another thread was faster
            return
        session.release()


def _key_of(args: tuple, kwargs: dict):
    """What tells steps apart that need plans of their own: the shapes of tensors. Dynamo guards the rest."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    return tuple((tuple(t.shape), t.dtype, t.device) if isinstance(t, torch.Tensor) else type(t) for t in leaves)
