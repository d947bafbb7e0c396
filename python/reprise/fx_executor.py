# SPDX-License-Identifier: Apache-2.0
"""The same plan as two FX graphs, to read and to step through: reprise.compile(model, executor="fx").

Slower than the C++ executor, and only for a backward like the one that was captured.
"""

from __future__ import annotations

import operator

import torch

from .planner import Plan, TrainingStep

_CALL, _TAKE, _COPY, _CLEAR, _STASH, _UNSTASH = range(6)


def random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def replay(state: torch.Tensor, device: torch.device, op, *args, **kwargs):
    """Runs `op` with the random numbers of its first run."""
    now = random_state(device)
    setter = (lambda s: torch.cuda.set_rng_state(s, device)) if device.type == "cuda" else torch.set_rng_state
    setter(state)
    try:
        return op(*args, **kwargs)
    finally:
        setter(now)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


class FxStep:
    """`forward` and `backward` are torch.fx.GraphModules; `print(step.forward.code)` shows what runs."""

    def __init__(self, step: TrainingStep, plan: Plan):
        self._program = step.lowered.program
        self._constants = dict(self._program["constants"])
        schedule = step.schedule(plan)
        self._random: dict[int, torch.fx.Node] = {}
        first = schedule.instructions[:schedule.forward_end]
        second = schedule.instructions[schedule.forward_end:]
        kept = self._needed_by(second)
        self._inputs, self._outputs = self._program["inputs"], self._program["outputs"]
        self.forward, alive = self._graph(first, list(dict.fromkeys(self._inputs)), self._outputs, kept)
        self._kept = [slot for slot in kept if slot in alive]
        tangents = [slot for slot in self._program["tangents"] if slot >= 0]
        self.backward, _ = self._graph(second, self._kept + tangents, self._program["gradients"], [])

    def __call__(self, *inputs: torch.Tensor) -> list:
        returned = _FxFunction.apply(self, *inputs)
        return list(returned)

    def _needed_by(self, instructions) -> list[int]:
        made: set[int] = set(slot for slot in self._program["tangents"])
        needed: dict[int, None] = {}
        for kind, a, b, *_ in instructions:
            read = self._arguments(a) if kind == _CALL else [a] if kind in (_TAKE, _COPY, _STASH) else []
            for slot in read:
                if slot >= 0 and slot not in made:
                    needed[slot] = None
            made |= set(self._results(a)) if kind == _CALL else {b} if kind in (_TAKE, _COPY) else set()
        for slot in self._program["gradients"]:
            if slot >= 0 and slot not in made:
                needed[slot] = None
        return list(needed)

    def _arguments(self, call: int) -> list[int]:
        flat: list[int] = []
        for kind, value in self._program["calls"][call]["arguments"]:
            flat.extend([value] if kind == "t" else value if kind == "ts" else [])
        return flat

    def _results(self, call: int) -> list[int]:
        flat: list[int] = []
        for result in self._program["calls"][call]["results"]:
            flat.extend(result if isinstance(result, list) else [result])
        return flat

    def _graph(self, instructions, given: list[int], returned: list[int], kept: list[int]):
        graph = torch.fx.Graph()
        places = {slot: graph.placeholder(f"slot{slot}") for slot in given}
        states = {call: graph.placeholder(f"random{call}") for call in self._random}
        module = torch.nn.Module()
        for slot, tensor in self._constants.items():
            module.register_buffer(f"constant{slot}", tensor, persistent=False)
            places.setdefault(slot, graph.get_attr(f"constant{slot}"))
        stash: dict[int, torch.fx.Node] = {}
        saved: dict[int, torch.fx.Node] = {}
        for kind, a, b, save, again_random, again, _ in instructions:
            if kind == _CALL:
                if save:
                    saved[a] = graph.call_function(random_state, (self._program["calls"][a]["device"],))
                drawn = self._program["calls"][a]["replays"]
                drawn = a if drawn < 0 else drawn
                self._call(graph, places, a, again, (saved.get(drawn) or states.get(drawn)) if again_random else None)
            elif kind in (_TAKE, _COPY):
                places[b] = places[a] if kind == _TAKE else graph.call_function(copied, (places[a],))
            elif kind == _CLEAR:
                places.pop(a, None)
            elif kind == _STASH:
                stash[a] = places.pop(a)
            elif kind == _UNSTASH:
                places[a] = stash.pop(a)
        alive = [slot for slot in kept if slot in places]
        graph.output((tuple(None if s < 0 else places[s] for s in returned), tuple(places[s] for s in alive),
                      tuple(saved.values())))
        self._random = self._random | saved
        graph.lint()
        return torch.fx.GraphModule(module, graph), set(alive)

    def _call(self, graph: torch.fx.Graph, places: dict, call: int, again: bool, state) -> None:
        entry = self._program["calls"][call]
        namespace, name = entry["op"].split("::")
        op = getattr(getattr(getattr(torch.ops, namespace), name), entry["overload"] or "default")
        arguments = []
        for position, (kind, value) in enumerate(entry["arguments"]):
            if kind == "t":
                place = None if value < 0 else places[value]
                if again and position in entry["scratch"] and place is not None:
                    place = graph.call_function(copied, (place,))
                arguments.append(place)
            else:
                arguments.append([None if s < 0 else places[s] for s in value] if kind == "ts" else value)
        positional = [a for a, known in zip(arguments, op._schema.arguments) if not known.kwarg_only]
        named = {known.name: a for a, known in zip(arguments, op._schema.arguments) if known.kwarg_only}
        if state is not None:
            node = graph.call_function(replay, (state, entry["device"], op, *positional), named)
        else:
            node = graph.call_function(op, tuple(positional), named)
        for i, result in enumerate(entry["results"]):
            part = node if len(entry["results"]) == 1 else graph.call_function(operator.getitem, (node, i))
            if isinstance(result, list):
                for k, slot in enumerate(result):
                    if slot >= 0:
                        places[slot] = graph.call_function(operator.getitem, (part, k))
            elif result >= 0:
                places[result] = part


class _FxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, step: FxStep, *inputs):
        places = dict(zip(step._inputs, inputs))
        given = [places[slot] for slot in dict.fromkeys(step._inputs)]
        outputs, kept, states = step.forward(*given)
        ctx.step, ctx.kept, ctx.states = step, kept, states
        ctx.set_materialize_grads(False)
        differentiable = step._program["differentiable"]
        outputs = tuple(None if out is None else out.detach() for out in outputs)
        ctx.mark_non_differentiable(*(out for out, wanted in zip(outputs, differentiable) if out is not None and not wanted))
        return outputs

    @staticmethod
    def backward(ctx, *tangents):
        step = ctx.step
        wanted = [t for t, differentiable in zip(tangents, step._program["differentiable"]) if differentiable]
        if any(t is None for t in wanted):
            raise RuntimeError('executor="fx" runs the backward that was captured: all outputs have to be used')
        handed = [t for t, slot in zip(wanted, step._program["tangents"]) if slot >= 0]
        gradients, _, _ = step.backward(*ctx.kept, *handed, *ctx.states)
        return None, *gradients
