# SPDX-License-Identifier: Apache-2.0
"""What a loss and a module can read beside their arguments."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Iterable, Iterator, NamedTuple

import torch
from torch import nn

_OF_ALL_MODULES = frozenset(vars(nn.Module()))  # names of attributes
_EMPTY = types.CellType()  # of a closure, not assigned yet
_KINDS = (torch.Tensor, nn.Module, functools.partial, types.MethodType, types.FunctionType)  # that are looked into
_NUMBERS = frozenset({int, float, bool, complex, str})  # words are as good
_LARGE = 1000  # entries of a container that is data, and is not


class AtHand(NamedTuple):
    modules: list[nn.Module]
    tensors: list[torch.Tensor]
    numbers: list


def of_loss(loss_fn: Callable) -> AtHand:
    """In closures, partials and attributes. What modules have is theirs."""
    found: dict[int, Any] = {}
    rest, numbers = [loss_fn], []
    while rest:
        value = rest.pop()
        if id(value) not in found:
            found[id(value)] = value
            leaves = list(_flat(_inside(value)))
            rest += [leaf for leaf in leaves if isinstance(leaf, _KINDS)]
            numbers += [leaf for leaf in leaves if type(leaf) in _NUMBERS]
    return AtHand([value for value in found.values() if isinstance(value, nn.Module)],
                  [value for value in found.values() if isinstance(value, torch.Tensor)], numbers)


def of_modules(modules: Iterable[nn.Module]) -> AtHand:
    """In attributes of their own, and in lists, tuples, dicts and objects there."""
    tensors, numbers, objects = [], [], {}
    for module in modules:
        for name, own in vars(module).items():
            if type(own) in _NUMBERS:  # most are: in less time
                numbers.append(own)
            elif name not in _OF_ALL_MODULES:
                for leaf in _flat(own):
                    _note(leaf, tensors, numbers, objects)
    for inside in objects.values():
        for own in inside.values():
            for leaf in _flat(own):
                _note(leaf, tensors, numbers, {})
    return AtHand([], tensors, numbers)


def _note(leaf: Any, tensors: list, numbers: list, objects: dict[int, dict]) -> None:
    if type(leaf) in _NUMBERS:
        numbers.append(leaf)
    elif isinstance(leaf, torch.Tensor):
        tensors.append(leaf)
    elif not isinstance(leaf, (nn.Module, type, types.ModuleType, types.FunctionType)) and hasattr(leaf, "__dict__"):
        objects[id(leaf)] = vars(leaf)


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
