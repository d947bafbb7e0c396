# SPDX-License-Identifier: Apache-2.0
"""What a whole step depends on: its model, its loss and its optimizer, as they are now."""

from __future__ import annotations

import weakref
from typing import Callable, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from .at_hand import AtHand, of_function, of_modules
from .kernels import kernel_settings
from .optimizers import RecordedOptimizer


class Seen(NamedTuple):
    state: tuple  # what a recording depends on
    touched: list[torch.Tensor]  # what a step reads and writes
    at_hand: list[weakref.ref]  # tensors of the model and of the loss
    is_hooked: bool  # a parameter is


class Watched:
    def __init__(self, model: nn.Module, loss_fn: Callable, optimizer: RecordedOptimizer):
        self._model, self._loss_fn, self._optimizer = model, loss_fn, optimizer

    def parameters(self) -> list[nn.Parameter]:
        """All that may have gradients."""
        return self._parameters_of(parts_of(self._model, self._loss_fn))

    def look(self) -> Seen:
        loss = of_function(self._loss_fn)
        there = of_modules(_parts(self._model, loss))
        parts, parameters = there.modules, self._parameters_of(there.modules)
        buffers = [buffer for part in parts for buffer in part._buffers.values() if buffer is not None]
        own = [*buffers, *there.tensors, *loss.tensors]
        others = [tensor for tensor in own if tensor.is_leaf]  # a step may leave activations there
        touched = [tensor for tensor in (*parameters, *others, *self._optimizer.tensors) if not is_lazy(tensor)]
        state = (parts, [*there.others, *loss.others], [_place(tensor) for tensor in touched],
                 [parameter.requires_grad for parameter in parameters],
                 [(*part._forward_hooks, *part._forward_pre_hooks) for part in parts],
                 [*_global_forward_hooks, *_global_forward_pre_hooks], kernel_settings())
        return Seen(state, touched, list(map(weakref.ref, [*parameters, *own])), any(
            parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in parameters))

    def left(self) -> dict[tuple[nn.Module, str], torch.Tensor]:
        """Activations that modules have in their attributes."""
        parts = of_modules(_parts(self._model, of_function(self._loss_fn))).modules
        return {(part, name): own for part in parts for name, own in vars(part).items()
                if isinstance(own, torch.Tensor) and not own.is_leaf}

    def _parameters_of(self, parts: list[nn.Module]) -> list[nn.Parameter]:
        own = [parameter for part in parts for parameter in part._parameters.values() if parameter is not None]
        return list(dict.fromkeys([*own, *self._optimizer.parameters]))


def parts_of(model: nn.Module, loss_fn: Callable) -> list[nn.Module]:
    """All modules of the model and of the loss."""
    return _parts(model, of_function(loss_fn))


def _parts(model: nn.Module, loss: AtHand) -> list[nn.Module]:
    return list(dict.fromkeys(part for module in (model, *loss.modules) for part in module.modules()))


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """Which tensor it is, and where it lies."""
    return id(tensor), tensor.data_ptr() if tensor.layout is torch.strided else 0
