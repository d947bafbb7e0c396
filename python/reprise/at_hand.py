# SPDX-License-Identifier: Apache-2.0
"""What a loss and a module can read beside their arguments."""

from __future__ import annotations

import functools
import numbers
import types
import weakref
from collections import deque
from typing import Any, Callable, Iterable, Iterator, NamedTuple

import torch
from torch import nn

_OF_ALL_MODULES = frozenset(vars(nn.Module()))  # names of attributes
_EMPTY = types.CellType()  # of a closure, not assigned yet
_LOOKED_INTO = (torch.Tensor, nn.Module, types.MethodType, types.FunctionType)
_COMPARED = frozenset({int, float, bool, complex, str})  # types whose values are compared …
_ALSO_COMPARED = (numbers.Number, torch.dtype, type, types.FunctionType, types.BuiltinFunctionType)  # … as are these
_WATCHED_BY_THE_STEP = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
_LARGE = 1000  # entries from which on a container is data, and is not looked into


class AtHand(NamedTuple):
    modules: list[nn.Module]
    tensors: list[torch.Tensor]
    others: list[tuple]  # names, each with a number, or with what else tells whether it is as it was


def of_function(function: Callable) -> AtHand:
    """In closures, partials and attributes. What modules have is theirs."""
    found: dict[int, Any] = {}
    rest, others = [function], []
    while rest:
        value = rest.pop()
        if id(value) not in found:
            found[id(value)] = value
            for name, leaf in _flat(_inside(value)):
                if isinstance(leaf, _LOOKED_INTO):
                    rest.append(leaf)
                if not isinstance(leaf, (torch.Tensor, nn.Module)):
                    others.append((name, _told_by(leaf)))
    return AtHand([value for value in found.values() if isinstance(value, nn.Module)],
                  [value for value in found.values() if isinstance(value, torch.Tensor)], others)


def of_modules(modules: Iterable[nn.Module]) -> AtHand:
    """In attributes of their own and what their hooks and methods close over, and in lists, tuples, dicts, partials and
    objects there. Modules that are found so are looked into as well, and come back with those that were given."""
    there, known = AtHand([], [], []), {id(module): module for module in modules}  # some compare or hash otherwise
    waiting = list(known.values())
    while waiting:
        found: list[nn.Module] = []
        _note_module(waiting.pop(), there, found)
        while found:
            module = found.pop()
            if id(module) not in known and hasattr(module, "_modules"):  # it is made, and not just begun
                known[id(module)] = module
                waiting.append(module)
                found.extend(part for part in module._modules.values() if part is not None)
    return AtHand(list(known.values()), there.tensors, there.others)


def _note_module(module: nn.Module, there: AtHand, found: list[nn.Module]) -> None:
    """`found`: other modules that it has otherwise than as parts."""
    objects: dict[int, dict] = {}
    for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):
        _note(("hook",), hook, there, found, objects)
    for name, own in vars(module).items():
        if type(own) in _COMPARED:  # most are this or the next: in less time
            there.others.append((name, own))
        elif type(own) is tuple and len(own) <= _LARGE and _COMPARED.issuperset(map(type, own)):
            there.others.append((name, own))
        elif name not in _OF_ALL_MODULES and type(own) not in weakref.ProxyTypes:
            for place, leaf in _flat(own, (name,)):
                _note(place, leaf, there, found, objects)
    for inside in objects.values():
        for name, own in inside.items():
            for place, leaf in _flat(own, (name,)):
                _note(place, leaf, there, found, {})


def _note(place: tuple, leaf: Any, there: AtHand, found: list[nn.Module], objects: dict[int, dict]) -> None:
    if isinstance(leaf, (types.ModuleType, *_WATCHED_BY_THE_STEP)):
        return
    if isinstance(leaf, nn.Module):
        found.append(leaf)
        return
    if isinstance(leaf, torch.Tensor):
        there.tensors.append(leaf)
        return
    there.others.append((place, _told_by(leaf)))
    if isinstance(leaf, (types.FunctionType, types.MethodType)):
        inside = of_function(leaf)
        found.extend(inside.modules)
        there.tensors.extend(inside.tensors)
        there.others.extend(inside.others)
    elif not _is_compared(leaf) and hasattr(leaf, "__dict__") and not type(leaf).__module__.startswith("reprise."):
        objects[id(leaf)] = vars(leaf)


def _told_by(leaf: Any) -> Any:
    """Which tells it from others: itself, or its type."""
    if isinstance(leaf, (set, frozenset)) and len(leaf) <= _LARGE:
        return frozenset(leaf)
    return leaf if _is_compared(leaf) or isinstance(leaf, types.MethodType) else type(leaf)


def _is_compared(leaf: Any) -> bool:
    return type(leaf) in _COMPARED or isinstance(leaf, _ALSO_COMPARED)


def _inside(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, nn.Module)):
        return []
    if isinstance(value, functools.partial):
        return _parts_of(value)
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__, _inside(value.__self__)]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY]
        return [cells, value.__defaults__, value.__kwdefaults__, vars(value)]
    return dict(getattr(value, "__dict__", {}))


def _parts_of(partial: functools.partial) -> list:
    return [partial.func, partial.args, partial.keywords]


def _flat(value: Any, place: tuple = (), depth: int = 8) -> Iterator[tuple[tuple, Any]]:
    """As tree_leaves, in less time, each with its place."""
    if isinstance(value, functools.partial):
        value = _parts_of(value)
    if not isinstance(value, (list, tuple, dict, deque)):
        yield place, value
    elif depth and len(value) <= _LARGE:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(inner, (*place, id(key) if isinstance(key, torch.Tensor) else key), depth - 1)
