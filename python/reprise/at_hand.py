# SPDX-License-Identifier: Apache-2.0
"""What a loss and a module can read beside their arguments."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Iterator

import torch
from torch import nn

_OF_ALL_MODULES = frozenset(vars(nn.Module()))  # names of attributes
_EMPTY = types.CellType()  # of a closure, not assigned yet
_KINDS = (torch.Tensor, nn.Module, functools.partial, types.MethodType, types.FunctionType)  # that are looked into
_LARGE = 1000  # entries of a container that is data, and is not


def at_hand(loss_fn: Callable) -> tuple[list[nn.Module], list[torch.Tensor]]:
    """Modules and tensors that a loss has in closures, partials and attributes. What modules have is theirs."""
    found: dict[int, Any] = {}
    rest = [loss_fn]
    while rest:
        value = rest.pop()
        if id(value) not in found:
            found[id(value)] = value
            rest += [leaf for leaf in _flat(_inside(value)) if isinstance(leaf, _KINDS)]
    return ([value for value in found.values() if isinstance(value, nn.Module)],
            [value for value in found.values() if isinstance(value, torch.Tensor)])


def attributes(value: Any) -> list[torch.Tensor]:
    """Tensors that it has of its own, in lists, tuples and dicts as well."""
    return [leaf for name, own in vars(value).items() if name not in _OF_ALL_MODULES
            for leaf in _flat(own) if isinstance(leaf, torch.Tensor)]


def _inside(value: Any) -> list:
    if isinstance(value, (torch.Tensor, nn.Module)):
        return []
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__, *_inside(value.__self__)]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY]
        return [cells, value.__defaults__, value.__kwdefaults__, vars(value)]
    return [*getattr(value, "__dict__", {}).values()]


def _flat(value: Any, depth: int = 8) -> Iterator[Any]:
    """As tree_leaves, in less time."""
    if not isinstance(value, (list, tuple, dict)):
        yield value
    elif depth and len(value) <= _LARGE:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _flat(inner, depth - 1)
