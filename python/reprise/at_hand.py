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


def at_hand(loss_fn: Callable) -> list:
    """What a loss may read beside its arguments: what closures, partials and attributes have."""
    found: dict[int, Any] = {}
    rest = [loss_fn]
    while rest:
        value = rest.pop()
        if id(value) in found:
            continue
        found[id(value)] = value
        if isinstance(value, functools.partial):
            rest += [value.func, *_flat([value.args, value.keywords])]
        elif isinstance(value, types.MethodType):
            rest += [value.__func__, value.__self__, *attributes(value.__self__)]
        elif isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY]
            rest += _flat([cells, value.__defaults__, value.__kwdefaults__, vars(value)])
        elif value is loss_fn:
            rest += attributes(value)
    return list(found.values())


def attributes(value: Any) -> list[torch.Tensor]:
    """Tensors that it has of its own, in lists, tuples and dicts as well."""
    return [leaf for name, own in getattr(value, "__dict__", {}).items() if name not in _OF_ALL_MODULES
            for leaf in _flat(own) if isinstance(leaf, torch.Tensor)]


def _flat(value: Any) -> Iterator[Any]:
    """As tree_leaves, in less time."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for inner in value:
            yield from _flat(inner)
    else:
        yield value
