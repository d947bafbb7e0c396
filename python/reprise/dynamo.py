# SPDX-License-Identifier: Apache-2.0
"""Has Dynamo find the graphs of a module."""

from __future__ import annotations

import sys
import types
from typing import Any, Callable

import torch
from torch import nn
from torch._dynamo.variables.torch import tracing_state_functions

from .errors import CaptureError, RepriseError
from .session import Options, Session
from .subgraph import Subgraph

# Dynamo's settings: it is never to fall back to plain training without a word …
NEVER_PLAINLY = {"allow_rnn": True, "fail_on_recompile_limit_hit": True}
# … and is to capture whatever it can.
_DYNAMO = NEVER_PLAINLY | {"recompile_limit": 1 << 20, "accumulated_recompile_limit": 1 << 20,
                           "skip_nnmodule_hook_guards": False, "nested_graph_breaks": True}
_DYNAMO = {name: value for name, value in _DYNAMO.items() if hasattr(torch._dynamo.config, name)}


class _Captured(Exception):
    """Ends a call as soon as there is a graph."""

    def __init__(self, subgraph: Subgraph):
        super().__init__("captured")
        self.subgraph = subgraph


def capture_call(plain: nn.Module, loss: Callable | None, options: Options, args: tuple) -> Subgraph:
    """Captures what a call of the module in training would run, and runs none of it."""
    if not isinstance(plain, nn.Module):
        raise TypeError(f"want an nn.Module, not {type(plain).__name__}")
    refuse_distributed(plain)
    check_devices(plain, args, {})
    session = Session(options)
    trained = {id(parameter) for parameter in plain.parameters() if parameter.requires_grad}

    def backend(module, inputs):
        made = session.backend(module, inputs)
        if session.is_broken:
            raise CaptureError(f"the model is more than one graph ({module.compile_subgraph_reason.reason}): "
                               "it can be compiled, but not planned without running it")
        if trained and trained.isdisjoint(map(id, inputs)):  # it is the loss's alone
            raise nothing_captured(plain)
        if not isinstance(made, Subgraph):
            return made

        def stop(*_):
            raise _Captured(made)

        return stop

    modes = [(module, module.training) for module in plain.modules()]
    if not plain.training:
        plain.train()
    try:
        with torch.enable_grad():
            under_dynamo(dynamo_call(plain, loss, session, backend), args, {})
    except _Captured as captured:
        return captured.subgraph
    finally:
        for module, mode in modes:
            module.training = mode
    raise nothing_captured(plain)


def under_dynamo(run: Callable, args: tuple, kwargs: dict):
    try:
        with torch._dynamo.config.patch(_DYNAMO):
            return run(*args, **kwargs)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        inner = error.inner_exception
        if isinstance(inner, (RepriseError, _Captured)):
            raise inner from None
        raise


def check_devices(model: nn.Module, args: tuple, kwargs: dict) -> None:
    home = next((p.device for p in model.parameters()), None)
    if home is not None and home.type == "meta":
        raise RepriseError("the model is on the meta device, where nothing runs: move it to one that has memory")
    for leaf in torch.utils._pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and leaf.dim() and home is not None and leaf.device != home:
            raise RepriseError(f"an input is on {leaf.device}, the model on {home}: move one of them")


def dynamo_call(plain: nn.Module, loss: Callable | None, session: Session,
                backend: Callable | None = None) -> Callable:
    """The module under Dynamo with a cache of its own: a fresh code object, so that shapes do not share a limit."""
    trace_as_eager_runs()
    for module in plain.modules():
        if isinstance(module, nn.RNNBase):  # a copy of a module has them lie apart, which cuDNN would mend at each step
            module.flatten_parameters()
    if loss is None:
        def step(*args, **kwargs):
            return plain(*args, **kwargs)
    else:
        def step(*args, **kwargs):
            args, kwargs, target = split_target(args, kwargs)
            return loss(plain(*args, **kwargs), target)
    fresh = types.FunctionType(step.__code__.replace(), step.__globals__, step.__name__, step.__defaults__,
                               step.__closure__)
    return torch.compile(fresh, backend=backend or session.backend, dynamic=False)


def split_target(args: tuple, kwargs: dict) -> tuple[tuple, dict, Any]:
    """What goes to the module, and what to the loss: target=, or the last argument."""
    if "target" in kwargs:
        return args, {name: value for name, value in kwargs.items() if name != "target"}, kwargs["target"]
    return args[:-1], kwargs, args[-1]


def nothing_captured(model: nn.Module) -> CaptureError:
    compiled = next((name for name, module in model.named_modules() if hasattr(module, "_reprise_state")), None)
    why = f"its part '{compiled}' is compiled already; compile either" if compiled is not None else (
        "Dynamo skipped its forward, as where a graph breaks in a loop (TORCH_LOGS=graph_breaks,dynamo says more)")
    return CaptureError(f"nothing of {type(model).__name__} could be captured: {why}")


def refuse_distributed(model: nn.Module) -> None:
    for module in model.modules():
        for kind in type(module).__mro__:
            if kind.__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DataParallel"):
                raise RepriseError(f"{kind.__name__} is not supported yet: compile the module on one device")


def trace_as_eager_runs() -> None:
    """Models of transformers do without an attention mask in eager, where they are given none, but make one where
    they find themselves exported, as torch before 2.14 says under Dynamo, or, before transformers 5.22, compiled."""
    tracing_state_functions()[torch.compiler.is_exporting] = False
    masks = sys.modules.get("transformers.masking_utils")
    if hasattr(masks, "is_tracing"):
        masks.is_tracing = _reads_traced
    found = getattr(masks, "find_packed_sequence_indices", None)
    if found is not None and found.__module__ != __name__:
        masks.find_packed_sequence_indices = _packed_sequences(found)


def _reads_traced(tensor: torch.Tensor | None = None) -> bool:
    """Would values be read that only a real step knows? Not where there is no tensor."""
    from transformers.utils.import_utils import is_tracing

    return tensor is not None and is_tracing(tensor)


def _packed_sequences(find: Callable) -> Callable:
    """Eager looks whether positions are those of one sequence, and makes no mask then. One row of them for a whole
    batch is one that the model has made, of one sequence: that is asserted while a step runs."""
    def find_packed_sequences(position_ids: torch.Tensor) -> torch.Tensor | None:
        if position_ids.shape[0] > 1 and position_ids.stride(0) == 0 and torch.compiler.is_compiling():
            torch._assert_async((torch.diff(position_ids[0]) == 1).all(), "position_ids are of several sequences")
            return None
        return find(position_ids)

    return find_packed_sequences
