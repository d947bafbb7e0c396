# SPDX-License-Identifier: Apache-2.0
"""Trains a network plainly and compiled, and tells where they first differ by a bit."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Iterator

import torch
from torch import nn

import reprise
from cases import Case
from reprise import costs, planner

STEPS = 3
SEED = 7


@dataclass
class Taken:
    """What one step left behind, by name, in the order in which it came about."""

    tensors: dict[str, torch.Tensor | None] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a model returned, flat: dicts, lists, tuples and dataclasses are gone into."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from leaves(f"{name}[{i}]", item)
    else:
        yield name, value


def copied(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A copy in memory that Reprise does not count: notes are no part of training."""
    if tensor is None:
        return None
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1)
    kept = torch.frombuffer(bytearray(flat.view(torch.uint8).numpy().tobytes() or b"\0"), dtype=torch.uint8)
    return kept[:flat.numel() * flat.element_size()].view(tensor.dtype).view(tensor.shape)


def note(model: nn.Module, out: Any = None, inputs: tuple = ()) -> Taken:
    taken = Taken()
    for name, value in leaves("output", out):
        if isinstance(value, torch.Tensor):
            taken.tensors[name] = copied(value)
        else:
            taken.constants[name] = value
    for name, parameter in model.named_parameters():
        taken.tensors[f"gradient of {name}"] = copied(parameter.grad)
    for i, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            taken.tensors[f"gradient of input {i}"] = copied(value.grad)
    for name, buffer in model.named_buffers():
        taken.tensors[f"buffer {name}"] = copied(buffer)
    for name, parameter in model.named_parameters():
        taken.tensors[f"parameter {name}"] = copied(parameter)
    taken.tensors["random state"] = copied(torch.get_rng_state())
    if torch.cuda.is_available():
        taken.tensors["random state of the GPU"] = copied(torch.cuda.get_rng_state())
    return taken


def data(case: Case, steps: int = STEPS) -> list:
    """What the steps are given, the same at each call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return [case.given() for _ in range(steps)]


def built(case: Case) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return case.build()


def train(model: nn.Module, case: Case, steps: int = STEPS) -> list[Taken]:
    """Steps of SGD with momentum and weight decay, which tell a gradient of zeros from none."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
    torch.manual_seed(SEED)
    taken = []
    for args, kwargs in data(case, steps):
        optimizer.zero_grad()
        out = model(*args, **kwargs)
        loss = case.loss(out)
        loss.backward()
        taken.append(note(model, (out, loss), args))
        del out, loss
        optimizer.step()
    return taken


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))


def difference(plain: list[Taken], compiled: list[Taken]) -> str | None:
    """The first thing that differs, in words; None: nothing does."""
    assert len(plain) == len(compiled)
    for number, (a, b) in enumerate(zip(plain, compiled)):
        if a.constants != b.constants:
            return f"step {number}: {a.constants} plainly, {b.constants} compiled"
        if list(a.tensors) != list(b.tensors):
            return f"step {number}: other tensors: {set(a.tensors) ^ set(b.tensors)}"
        for name, one in a.tensors.items():
            other = b.tensors[name]
            if one is None and other is None:
                continue
            if one is None or other is None:
                return f"step {number}: {name} is {'None' if one is None else 'there'} plainly, not so compiled"
            if not same(one, other):
                return f"step {number}: {name} differs{_by_how_much(one, other)}"
    return None


def _by_how_much(a: torch.Tensor, b: torch.Tensor) -> str:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f": {a.dtype} {tuple(a.shape)} plainly, {b.dtype} {tuple(b.shape)} compiled"
    if not (a.is_floating_point() or a.is_complex()):
        return ""
    return f" by up to {float((a - b).abs().max()):.3g} of {float(a.abs().max()):.3g}"


def assert_same(plain: list[Taken], compiled: list[Taken]) -> None:
    found = difference(plain, compiled)
    assert found is None, found


def twins(case: Case) -> tuple[nn.Module, nn.Module]:
    model = built(case)
    return model, copy.deepcopy(model)


# What people do around a step, written down as one step and done with both.
QUICK = {"plan_seconds": None, "plan_iterations": 200}
Step = Callable[[nn.Module, int], Iterable[Any]]  # model and number of the step; yields what to note, gradients aside
Run = Callable[[nn.Module], "list[Taken]"]


def calls_of(face: nn.Module) -> list[tuple[str, int]]:
    """What a compiled module's step calls: names, and in how many parts."""
    facts = face._reprise_state.facts[0]
    calls = facts.step.lowered.program.calls
    return [(calls[i.call].op, i.parts) for i in facts.step.schedule(facts.plan).instructions if i.call >= 0]


def say_at_once(monkeypatch, more: int = 0) -> None:
    """All backwards of convolutions are said to take less time, and so many bytes more, with both of their gradients
    computed at once."""
    def add_costs(lowered, program, **options):
        ways = costs.add_costs(lowered, program, **options)
        ways.at_once = {op: costs.AtOnce(number, more, less=0) for op, operation in enumerate(lowered.program.operations)
                        for number in operation.calls if lowered.program.calls[number].op == "aten::convolution_backward"}
        return ways

    monkeypatch.setattr(planner, "add_costs", add_costs)


def compiled(model: nn.Module, budget: int | str = "min", **options) -> nn.Module:
    return reprise.compile(model, budget, **QUICK, **options)


def batch(seed: int = 1, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (64, 8)), generator=torch.Generator().manual_seed(seed))


def squared(out: torch.Tensor) -> torch.Tensor:
    return out.float().pow(2).mean()


def usual(forward: Callable[[nn.Module, int], torch.Tensor] = lambda model, i: model(batch(i))) -> Step:
    """Forward, and backward from the mean of squares."""
    def step(model: nn.Module, i: int) -> Iterator[Any]:
        out = forward(model, i)
        squared(out).backward()
        yield out

    return step


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def loop(step: Step = usual(), steps: int = 3, optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd) -> Run:
    """Gradients are None when a step begins; the learning rate is halved after each."""
    def run(model: nn.Module) -> list[Taken]:
        update, taken = optimizer(model), []
        schedule = torch.optim.lr_scheduler.StepLR(update, 1, 0.5)
        for i in range(steps):
            model.zero_grad()
            taken += [note(model, out) for out in step(model, i)]
            update.step()
            schedule.step()
        return taken

    return run


def both(build: Callable[[], nn.Module], run: Run, wrap: Callable[[nn.Module], nn.Module] = compiled) -> nn.Module:
    """Does the same with the plain and the compiled module; the compiled one, once nothing differs."""
    torch.manual_seed(3)
    model = build()
    face = wrap(copy.deepcopy(model))
    found = []
    for one in (model, face):
        torch.manual_seed(SEED)
        found.append(run(one))
    assert_same(*found)
    return face


def stack(layers: int = 8, width: int = 32, drop: float = 0.0) -> nn.Sequential:
    """Layers as large as one another: with enough of them, a plan of any size."""
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(drop)) for _ in range(layers)])


def peak_of_a_step(model: nn.Module, x: torch.Tensor) -> int:
    model.zero_grad()
    with reprise.memory.measure() as memory:
        squared(model(x)).backward()
    return memory.peak


def computes_again(face: nn.Module) -> bool:
    return face.report().recomputed > 0


def captures(face: nn.Module) -> int:
    return face._reprise_state.last.captures
