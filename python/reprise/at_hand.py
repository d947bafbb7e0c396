# SPDX-License-Identifier: Apache-2.0
"""What a loss and a module can read beside their arguments."""

from __future__ import annotations

import functools
import numbers
import types
import weakref
from typing import Any, Callable, Iterable, Iterator, NamedTuple

import torch
from torch import nn

_OF_ALL_MODULES = frozenset(vars(nn.Module()))  # names of attributes
_EMPTY = types.CellType()  # of a closure, not assigned yet
_KINDS = (torch.Tensor, nn.Module, functools.partial, types.MethodType, types.FunctionType)  # that are looked into
_NUMBERS = frozenset({int, float, bool, complex, str})  # words are as good …
_ALSO_NUMBERS = (numbers.Number, torch.dtype, type, types.FunctionType, types.BuiltinFunctionType)  # … as are these
_OTHERS_MATTER = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)  # that a step looks at itself
_LARGE = 1000  # entries of a container that is data, and is not


class AtHand(NamedTuple):
    modules: list[nn.Module]
    tensors: list[torch.Tensor]
    numbers: list


def of_loss(loss_fn: Callable) -> AtHand:
    """In closures, partials and attributes. What modules have is theirs."""
    found: dict[int, Any] = {}
    rest, told = [loss_fn], []
    while rest:
        value = rest.pop()
        if id(value) not in found:
            found[id(value)] = value
            leaves = list(_flat(_inside(value)))
            rest += [leaf for leaf in leaves if isinstance(leaf, _KINDS)]
            told += [leaf for leaf in leaves if _is_number(leaf)]
    return AtHand([value for value in found.values() if isinstance(value, nn.Module)],
                  [value for value in found.values() if isinstance(value, torch.Tensor)], told)


def of_modules(modules: Iterable[nn.Module]) -> AtHand:
    """In attributes of their own, and in lists, tuples, dicts and objects there."""
    there, objects = AtHand([], [], []), {}
    for module in modules:
        for name, own in vars(module).items():
            if type(own) in _NUMBERS:  # most are: in less time
                there.numbers.append(own)
            elif name not in _OF_ALL_MODULES and type(own) not in weakref.ProxyTypes:
                for leaf in _flat(own):
                    _note(leaf, there, objects)
    for inside in objects.values():
        for own in inside.values():
            for leaf in _flat(own):
                _note(leaf, there, {})
    return there


def _note(leaf: Any, there: AtHand, objects: dict[int, dict]) -> None:
    if isinstance(leaf, (nn.Module, types.ModuleType, *_OTHERS_MATTER)):
        return
    if _is_number(leaf):
        there.numbers.append(leaf)
    elif isinstance(leaf, torch.Tensor):
        there.tensors.append(leaf)
    elif hasattr(leaf, "__dict__") and not type(leaf).__module__.startswith("reprise."):
        objects[id(leaf)] = vars(leaf)


def _is_number(leaf: Any) -> bool:
    return type(leaf) in _NUMBERS or isinstance(leaf, _ALSO_NUMBERS)


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
