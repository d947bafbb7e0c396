# SPDX-License-Identifier: Apache-2.0
"""The same plan as two FX graphs, to read and to step through: reprise.compile(model, executor="fx").

Slower than the C++ executor, and only for a backward like the one that was captured.
"""

from __future__ import annotations

import operator

import torch

from ._torch import Instruction
from .capture.program import Call, Program
from .errors import CaptureError
from .planner import Plan

Kind = Instruction.Kind


def random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def replay(state: torch.Tensor, device: torch.device, op, /, *args, **kwargs):
    """Runs `op` with the random numbers of its first run."""
    now = random_state(device)
    setter = (lambda s: torch.cuda.set_rng_state(s, device)) if device.type == "cuda" else torch.set_rng_state
    setter(state)
    try:
        return op(*args, **kwargs)
    finally:
        setter(now)


def write_over(op, plain, is_whole: bool, /, *args, **kwargs) -> torch.Tensor:
    """Runs `op`, which writes over its last argument, if that looks like the others; else `plain`."""
    name, out = next(reversed(kwargs.items()))
    if all(not isinstance(a, torch.Tensor) or not a.dim() or (a.shape, a.stride()) == (out.shape, out.stride())
           for a in args):
        return op(*args, **kwargs)
    result = plain(*args, **{key: value for key, value in kwargs.items() if key != name})
    return result if is_whole else out.copy_(result)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


class FxStep:
    """`forward` and `backward` are torch.fx.GraphModules; `print(step.forward.code)` shows what runs."""

    def __init__(self, plan: Plan):
        self._program = program = plan.step.lowered.program
        self._is_autocast = plan.step.case.autocast  # in backward
        if any(call.op == "aten::mkldnn_rnn_layer" for call in program.calls):
            raise CaptureError('executor="fx" runs no nn.LSTM on the CPU, whose workspace Python can\'t hand on: use '
                               'executor="native"')
        schedule = plan.step.schedule(plan)
        first = schedule.instructions[:schedule.forward_end]
        second = schedule.instructions[schedule.forward_end:]
        kept = self._needed_by(second)
        self.forward, alive, drawn = self._graph(first, list(dict.fromkeys(program.inputs)), program.outputs, kept, [])
        tangents = [slot for slot in program.tangents if slot >= 0]
        self.backward, _, _ = self._graph(second, alive + tangents, program.gradients, [], drawn)

    def __call__(self, *inputs: torch.Tensor) -> list:
        reached = self._program.reached  # eager's graph ends where the others are detached
        returned = _FxFunction.apply(self, *(x if goes_on else x.detach() for x, goes_on in zip(inputs, reached)))
        return list(returned)

    def _needed_by(self, instructions) -> list[int]:
        made = {-1, *self._program.tangents}
        needed: dict[int, None] = {}
        for instruction in instructions:
            read: list[int] = []
            if instruction.kind == Kind.call:
                read = self._program.calls[instruction.call].read()
            elif instruction.kind in (Kind.take, Kind.copy, Kind.stash):
                read = [instruction.slot]
            needed |= dict.fromkeys(slot for slot in read if slot not in made)
            if instruction.kind == Kind.call:
                made.update(self._program.calls[instruction.call].made())
            elif instruction.kind in (Kind.take, Kind.copy):
                made.add(instruction.target)
        return list(needed | dict.fromkeys(slot for slot in self._program.gradients if slot not in made))

    def _graph(self, instructions, given: list[int], returned: list[int], kept: list[int], drawn: list[int]):
        """`drawn`: random calls that ran before, whose states it is handed. With it come the slots of `kept` that are
        there at its end, and the random calls whose states it saved."""
        graph = torch.fx.Graph()
        places = {slot: graph.placeholder(f"slot{slot}") for slot in given}
        states = {call: graph.placeholder(f"random{call}") for call in drawn}
        module = torch.nn.Module()
        for slot, tensor in self._program.constants:
            module.register_buffer(f"constant{slot}", tensor, persistent=False)
            places.setdefault(slot, graph.get_attr(f"constant{slot}"))
        stash: dict[int, torch.fx.Node] = {}
        saved: dict[int, torch.fx.Node] = {}
        for instruction in instructions:
            slot = instruction.slot
            match instruction.kind:
                case Kind.call:
                    call = self._program.calls[instruction.call]
                    if instruction.save_random:
                        saved[instruction.call] = graph.call_function(random_state, (call.device,))
                    first = instruction.call if call.replays < 0 else call.replays
                    state = (saved.get(first) or states.get(first)) if instruction.replay_random else None
                    _add_call(graph, places, call, instruction.again, state, self._program)
                case Kind.take:
                    places[instruction.target] = places[slot]
                case Kind.copy:
                    places[instruction.target] = graph.call_function(copied, (places[slot],))
                case Kind.clear:
                    places.pop(slot, None)
                case Kind.stash:
                    stash[slot] = places.pop(slot)
                case Kind.unstash:
                    places[slot] = stash.pop(slot)
        alive = [slot for slot in kept if slot in places]
        graph.output((tuple(None if s < 0 else places[s] for s in returned), tuple(places[s] for s in alive),
                      tuple(saved.values())))
        graph.lint()
        return torch.fx.GraphModule(module, graph), alive, list(saved)


def _add_call(graph: torch.fx.Graph, places: dict, call: Call, again: bool, state, program: Program) -> None:
    namespace, name = call.op.split("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    op = getattr(packet, call.overload or "default")
    arguments = call.filled(lambda slot: places[slot])
    if again:
        for position in call.scratch:
            if arguments[position] is not None:
                arguments[position] = graph.call_function(copied, (arguments[position],))
    positional = [a for a, known in zip(arguments, op._schema.arguments) if not known.kwarg_only]
    named = {known.name: a for a, known in zip(arguments, op._schema.arguments) if known.kwarg_only}
    if call.plain is not None:
        slot = call.arguments[-1]
        plain, is_whole = getattr(packet, call.plain or "default"), program.view_of_slot[slot] < 0
        places[slot] = graph.call_function(write_over, (op, plain, is_whole, *positional), named)
        return
    if state is not None:
        node = graph.call_function(replay, (state, call.device, op, *positional), named)
    else:
        node = graph.call_function(op, tuple(positional), named)
    for i, result in enumerate(call.results):
        part = node if len(call.results) == 1 else graph.call_function(operator.getitem, (node, i))
        if isinstance(result, list):
            places |= {slot: graph.call_function(operator.getitem, (part, k))
                       for k, slot in enumerate(result) if slot >= 0}
        elif result >= 0:
            places[result] = part


class _FxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, step: FxStep, *inputs):
        given = dict(zip(step._program.inputs, inputs)).values()
        with torch._C._DisableAutocast():  # what it does was captured
            outputs, kept, states = step.forward(*given)
        ctx.step, ctx.kept, ctx.states = step, kept, states
        ctx.set_materialize_grads(False)
        differentiable = step._program.differentiable
        outputs = tuple(None if out is None else out.detach() for out in outputs)
        ctx.mark_non_differentiable(*(out for out, wanted in zip(outputs, differentiable)
                                      if out is not None and not wanted))
        return outputs

    @staticmethod
    def backward(ctx, *tangents):
        step, kept, ctx.kept = ctx.step, ctx.kept, None
        if kept is None:
            raise RuntimeError('executor="fx" runs backward once: it writes over what forward has kept')
        wanted = [t for t, differentiable in zip(tangents, step._program.differentiable) if differentiable]
        if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))) != step._is_autocast:
            raise RuntimeError('executor="fx" runs the backward that was captured: autocast was '
                               f'{"on" if step._is_autocast else "off"} in it')
        if any(t is None for t in wanted):
            raise RuntimeError('executor="fx" runs the backward that was captured: all outputs have to be used')
        handed = [t for t, slot in zip(wanted, step._program.tangents) if slot >= 0]
        with torch._C._DisableAutocast():
            gradients, _, _ = step.backward(*kept, *handed, *ctx.states)
        return None, *gradients
