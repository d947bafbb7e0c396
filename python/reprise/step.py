# SPDX-License-Identifier: Apache-2.0
"""reprise.Step: forward, loss, backward and optimizer as one CUDA graph."""

from __future__ import annotations

import contextlib
import gc
import logging
import operator
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import increment_version
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from . import _torch, memory
from .dynamo import check_devices
from .errors import RepriseError
from .facts import Facts
from .module import compile
from .optimizers import RecordedOptimizer, check_optimizer
from .planner import TrainingStep
from .watched import Seen, Watched, parts_of
from .words import bytes_words, first_line

log = logging.getLogger("reprise")

_WARM = 4  # updates that run as they are: libraries set themselves up, optimizers make their state
_PATIENCE = 3  # changes of a plan, or of what a step reads, after which no more are waited for
_WORTH_IT = 10  # replays
_PLAIN = (int, float, bool, str, type(None))  # what arguments may be, tensors aside


Parameters = frozenset[nn.Parameter]


class _Role(NamedTuple):
    """Of a call, among those that make an update."""

    is_first: bool
    is_last: bool
    summed: Parameters = frozenset()  # of the last: whose gradients the calls before it have added to


@dataclass
class _Ran:
    """A call as it is."""

    facts: list[Facts]
    summed: Parameters  # whose gradients it added to
    read: list[weakref.ref]  # tensors, arguments aside

    def unlike(self, other: "_Ran") -> str | None:
        """Why a recording of the other would not do for this one, if it would not."""
        if self.steps != other.steps:
            return "Python runs another step from call to call"
        if len(self.read) != len(other.read) or not all(map(operator.is_, self.read, other.read)):
            return "tensors that a step reads are others from call to call"
        return None

    @property
    def steps(self) -> list[TrainingStep]:
        return [each.step for each in self.facts]


@dataclass
class _Recorded:
    graph: _torch.CudaGraph
    loss: torch.Tensor
    gradients: list[tuple[nn.Parameter, torch.Tensor | None]]  # that are there after it
    summed: Parameters  # whose gradients it adds to
    touched: list[torch.Tensor]  # what it reads and writes: held, so that nothing else comes to lie there …
    facts: list[Facts]  # … like the constants of what was captured
    changed: list[torch.Tensor]  # of these, what it writes to in a way that PyTorch counts
    left: dict[tuple[nn.Module, str], torch.Tensor]  # activations in attributes
    replays: int = 0


@dataclass
class _Shape:
    """What was seen of one shape of inputs."""

    calls: int = 0  # since it is the step that it is
    state: tuple | None = None  # what it was when it last ran as it is
    wasted: int = 0  # recordings in a row that were replayed a few times only
    others: int = 0  # calls that were unlike the one before, though nothing was seen to change
    unlike: str | None = None  # why the last of them was
    given: Any = None  # args and kwargs, where graphs read them; there from the first call on: plans know of it
    ran: dict[_Role, _Ran] = field(default_factory=dict)  # the last call as it is
    recorded: dict[_Role, _Recorded] = field(default_factory=dict)
    failures: int = 0  # to record

    def forget(self) -> None:
        """It is another step now, which has to be planned, and run as it is, first."""
        self.recorded.clear()
        self.ran.clear()
        self.state, self.calls = None, 0


class Step:
    """One training step of `model`, called with its inputs and the target; returns the loss.

    >>> step = reprise.Step(model, nn.functional.cross_entropy, optimizer, budget="6GiB")
    >>> for x, target in loader:
    ...     loss = step(x, target)

    On a GPU the whole step is recorded once for each shape of its inputs and replayed from then on, with new inputs
    copied in; where that can't be, it runs as it is, and `reason` says why. It is recorded anew where the model, the
    loss or the optimizer changes: tensors that they have, in attributes, closures and arguments of a partial, numbers
    there, modules, their hooks and modes, parameters that are frozen. What else Python reads or decides, as by globals
    or random numbers of the host's, is as it was when the step was recorded. A step that reads what the one before has
    left, as a hidden state, is not recorded.
    Gradients belong to the step, which clears them when an update begins: between calls they are None or undefined.
    Forward runs under the caller's autocast, backward and the optimizer under none.

    Learning rates may change: `fused` optimizers and those that are `capturable` (which is switched on) read them from
    the device. For others the step is recorded anew, and after a few times the optimizer runs beside the graph.

    accumulate: how many calls make an update; their gradients are summed up.
    shapes: how many shapes of inputs keep their plans and graphs.
    options: others of reprise.compile, `executor` aside.
    """

    def __init__(self, model: nn.Module, loss_fn: Callable, optimizer: torch.optim.Optimizer,
                 budget: int | str = "auto", *, accumulate: int = 1, shapes: int = 8, **options):
        if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
            raise ValueError(f"accumulate={accumulate!r}: want a whole number of at least 1")
        if "executor" in options:
            raise ValueError("reprise.Step has its own executor: leave executor= out")
        if not callable(loss_fn):
            raise TypeError(f"reprise.Step wants a loss that can be called, not {type(loss_fn).__name__}")
        self.model = compile(model, budget, loss=loss_fn, executor="native", shapes=shapes, **options)
        check_optimizer(optimizer, (parameter for part in parts_of(self.model, loss_fn)
                                    for parameter in part.parameters(recurse=False)))
        self.optimizer = optimizer
        self.accumulate = accumulate
        self._most_shapes = shapes
        self._device = _only_device(self.model)
        self.reason = None if _has_graphs(self._device) else f"the model is on {self._device}"
        self._memory = _torch.GraphMemory(self._device) if self.reason is None else None
        self.measured_bytes: int | None = None  # of the device, at the worst moment of what was recorded last
        self._turn = 0  # of the next call, among those that make an update
        self._in_vain = 0  # calls in a row that ran as they are
        self._shapes: OrderedDict[Any, _Shape] = OrderedDict()
        self._summed: Parameters = frozenset()  # whose gradients the calls of this update have added to
        self._gradients: dict[nn.Parameter, torch.Tensor] = {}  # those that outlast a call, the same for all shapes
        self._recorded_optimizer = RecordedOptimizer(optimizer, self._device if self.reason is None else None)
        self._watched = Watched(self.model, loss_fn, self._recorded_optimizer)
        adopt = weakref.WeakMethod(self._adopt_optimizer)  # an optimizer may outlive the step
        handle = optimizer.register_load_state_dict_post_hook(lambda _: adopt() and adopt()())
        weakref.finalize(self, handle.remove)

    def __call__(self, *args, **kwargs) -> torch.Tensor:
        if not self.model.training:
            raise RepriseError("reprise.Step trains: call model.train() first, or the model itself to evaluate")
        if not torch.is_grad_enabled():
            raise RepriseError("reprise.Step trains: call it outside of torch.no_grad, or the model itself to evaluate")
        given, role = (args, kwargs), self._role()
        if self.reason is None and (other := self._unfit(given)) is not None:
            check_devices(self.model, args, kwargs)  # what is refused turns nothing off
            self._turn_off(other)
        shape = self._shape_of(given)
        with self._after_the_last():
            if self.accumulate > 1:
                for parameter, gradient in self._gradients.items():
                    parameter.grad = gradient
            at_hand = self._make_ready(shape, role, given) if self.reason is None else []
            is_recorded = role in shape.recorded
            if is_recorded:
                self._copy(shape, given)
                loss, summed = self._replay(shape.recorded[role])
            else:
                loss, summed = self._run(shape, role, given, at_hand)
            if role.is_last and self._recorded_optimizer.is_beside:
                with self._as_a_whole(), torch.autocast(self._device.type, enabled=False):
                    self.optimizer.step()
            if not is_recorded and self.reason is None:
                shape.state = self._watched.look().state
        shape.calls += 1
        self._turn = 0 if role.is_last else self._turn + 1
        self._in_vain = 0 if is_recorded else self._in_vain + 1
        self._summed = frozenset() if role.is_last else self._summed | summed
        return loss

    def _role(self) -> _Role:
        is_last = self._turn + 1 == self.accumulate
        return _Role(self._turn == 0, is_last, self._summed if is_last else frozenset())

    @contextlib.contextmanager
    def _as_a_whole(self) -> Iterator[None]:
        """Where this fails, gradients may have a part of it: the update is begun anew."""
        try:
            yield
        except BaseException:
            self._turn, self._summed = 0, frozenset()
            raise

    @contextlib.contextmanager
    def _after_the_last(self) -> Iterator[None]:
        """Steps may run on one stream or another: they share memory, and so each waits for the one before."""
        pool = self._memory
        if pool is None:
            yield
            return
        pool.enter()
        try:
            yield
        finally:
            pool.leave()

    def _make_ready(self, shape: _Shape, role: _Role, given: tuple) -> list[weakref.ref]:
        """Records the call if that is due. Returns the tensors that the model and the loss have."""
        if self._recorded_optimizer.has_changed():
            self._forget()
        if shape.given is None:
            shape.given = tree_map(_empty_as, given)
        seen = self._watched.look()
        self._record_if_due(shape, role, given, seen)
        return seen.at_hand

    def _run(self, shape: _Shape, role: _Role, given: tuple,
             at_hand: list[weakref.ref]) -> tuple[torch.Tensor, Parameters]:
        """As it is."""
        before = list(map(_version, _tensors(given)))
        with self._recorded_optimizer.rates_on_device():
            loss = self._forward(role, given)
            with self._as_a_whole():
                summed = self._backward(role, loss)
        if self.reason is None and before != list(map(_version, _tensors(given))):
            self._turn_off("the step changes an argument in place")
        if self.reason is None:
            ran = _Ran(self.model._reprise_state.facts, summed, self._read(given, at_hand))
            if role in shape.ran and (unlike := ran.unlike(shape.ran[role])) is not None:
                shape.calls, shape.unlike = 0, unlike
                shape.others += 1
            shape.ran[role] = ran
        if self.accumulate > 1:
            self._keep_gradients(summed)
        return loss.detach(), summed

    def _read(self, given: tuple, at_hand: list[weakref.ref]) -> list[weakref.ref]:
        """Tensors that captured graphs read in a call as it is, and that were there before. Of several graphs, those at
        hand: the others may be what one hands to the next."""
        state, arguments = self.model._reprise_state, list(map(weakref.ref, _tensors(given)))
        left_out, known = set(map(id, arguments)), set(map(id, at_hand))  # a dead one has no hash
        return [ref for ref in state.handed
                if id(ref) not in left_out and (len(state.facts) == 1 or id(ref) in known)]

    def _forward(self, role: _Role, given: tuple) -> torch.Tensor:
        args, kwargs = given
        if role.is_first:
            self._clear_gradients()
        loss = self.model(*args, **kwargs)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise RepriseError(f"the loss is {what}: want a tensor of one element")
        return loss

    def _backward(self, role: _Role, loss: torch.Tensor) -> Parameters:
        """With the update, where that is due and not done beside. Whose gradients were added to."""
        parameters = self._watched.parameters()
        before = [(parameter.grad, _version(parameter.grad)) for parameter in parameters]
        with torch.autocast(self._device.type, enabled=False):
            loss.backward()
            summed = frozenset(parameter for parameter, (gradient, version) in zip(parameters, before)
                               if parameter.grad is not gradient or _version(gradient) != version)
            if role.is_last:
                for parameter in parameters:
                    if parameter not in summed and parameter not in role.summed:
                        parameter.grad = None
                if not self._recorded_optimizer.is_beside:
                    self.optimizer.step()
        return summed

    def _clear_gradients(self) -> None:
        """Those of several calls are summed up where they lie."""
        places = self._gradients if self.accumulate > 1 else {}
        for parameter in self._watched.parameters():
            parameter.grad = places.get(parameter)
        if places:
            torch._foreach_zero_(list(places.values()))

    def _keep_gradients(self, summed: Parameters) -> None:
        """Where they are."""
        made = {parameter: parameter.grad for parameter in summed
                if parameter.grad is not self._gradients.get(parameter)}
        if made and any(shape.recorded for shape in self._shapes.values()):
            self._forget()  # where they were is where they read them, and they clear no others
        there = set(self._watched.parameters())
        self._gradients = {parameter: gradient for parameter, gradient in (self._gradients | made).items()
                           if parameter in there}

    def _unfit(self, given: tuple) -> str | None:
        """Why a graph can't take these arguments, if it can't."""
        for leaf in tree_leaves(given):
            if not isinstance(leaf, (torch.Tensor, *_PLAIN)):
                return f"an argument is a {type(leaf).__name__}"
            if isinstance(leaf, torch.Tensor) and leaf.device != self._device:
                return f"an argument is a {type(leaf).__name__} on {leaf.device}"
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                return "an argument wants a gradient"
            if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
                return f"an argument is of layout {leaf.layout}"
        return None

    def _record_if_due(self, shape: _Shape, role: _Role, given: tuple, seen: Seen) -> None:
        if seen.is_hooked:
            self._turn_off("a parameter has a hook")
            return
        state = seen.state
        if shape.recorded and shape.state != state:
            hardly_ran = any(recorded.replays < _WORTH_IT for recorded in shape.recorded.values())
            shape.wasted = shape.wasted + 1 if hardly_ran else 0
            if shape.wasted == _PATIENCE:
                self._turn_off("tensors or numbers of the model, of the loss or of the optimizer are replaced time and "
                               "again")
                return
        for other in self._shapes.values():
            if other.state != state:
                other.forget()
        if role in shape.recorded:
            return
        if shape.others > _PATIENCE * self.accumulate:
            self._turn_off(shape.unlike)
        elif self._is_due(shape, role):
            self._copy(shape, given)
            self._record(shape, role, seen)
        elif self._in_vain >= 2 * _WARM * self.accumulate * (self._most_shapes + _PATIENCE):
            self._turn_off(f"inputs have more than {self._most_shapes} shapes, or numbers or tensors change from call "
                           "to call")

    def _is_due(self, shape: _Shape, role: _Role) -> bool:
        if role not in shape.ran or shape.calls < _WARM * self.accumulate:
            return False
        return all(facts.is_settled for facts in shape.ran[role].facts) or shape.calls >= 2 * _WARM * self.accumulate

    def _record(self, shape: _Shape, role: _Role, seen: Seen) -> None:
        facts, parameters = shape.ran[role].facts, self._watched.parameters()
        elsewhere = next((each.step.off_device for each in facts if each.step.off_device), None)
        if elsewhere is not None:
            self._turn_off(elsewhere)
            return
        if self._hands_over:
            for parameter in shape.ran[role].summed:
                if parameter not in self._gradients:
                    self._gradients[parameter] = torch.empty_like(parameter)
        before = [parameter.grad for parameter in parameters]
        versions, left = list(map(_version, seen.touched)), self._watched.left()
        turns = sum(_torch.random_turns(each.step.schedule(each.plan)) for each in facts)
        graph, made = _torch.CudaGraph(self._memory, turns), []
        gc.collect()  # memory of other graphs can't be given back while this one is recorded
        torch.cuda.empty_cache()  # what steps before have left would lie beside the graph's own memory
        random_states = torch.get_rng_state(), torch.cuda.get_rng_state(self._device)
        try:
            with self._recorded_optimizer.rates_on_device(), memory.measure(self._device) as taken:
                graph.record(lambda: made.append(self._recorded_work(role, shape.given)))
        except Exception as error:  # nothing of it has run: if it is wrong, it is so as it is
            torch.set_rng_state(random_states[0])
            torch.cuda.set_rng_state(random_states[1], self._device)
            for parameter, gradient in zip(parameters, before):
                parameter.grad = gradient
            shape.failures += 1
            ran = self.model._reprise_state.facts  # of several graphs those up to the one that failed
            if ran != facts[:len(ran)] and shape.failures < _PATIENCE:
                shape.calls = 0  # by another plan, which has to run as it is first
            else:
                self._turn_off(first_line(error) or type(error).__name__)
            return
        if self.accumulate == 1 and not self._recorded_optimizer.is_beside:  # they are the graph's own
            self._clear_gradients()
        gradients = [(parameter, parameter.grad) for parameter in parameters]
        (loss, summed), = made
        read = [tensor for tensor in map(_alive, self.model._reprise_state.handed) if tensor is not None]
        changed = [tensor for tensor, version in zip(seen.touched, versions) if _version(tensor) != version]
        left = {place: tensor for place, tensor in self._watched.left().items() if left.get(place) is not tensor}
        shape.recorded[role] = _Recorded(graph, loss, gradients, summed, [*seen.touched, *read],
                                         self.model._reprise_state.facts, changed, left)
        self.measured_bytes, budget = taken.peak, facts[0].budget if facts else None
        if budget is not None and taken.peak > budget:
            log.warning("the recorded step takes %s, and the budget is %s: what the optimizer takes while it runs is in "
                        "no budget, so name a smaller one", bytes_words(taken.peak), bytes_words(budget))

    @property
    def _hands_over(self) -> bool:
        """Does a graph hand its gradients to an optimizer beside it?"""
        return self._recorded_optimizer.is_beside and self.accumulate == 1

    def _recorded_work(self, role: _Role, given: tuple) -> tuple[torch.Tensor, Parameters]:
        """Gradients that outlast it lie in one place, whichever graph made them."""
        loss = self._forward(role, given)
        summed = self._backward(role, loss)
        outlasting = summed if self.accumulate > 1 or self._hands_over else ()
        if any(parameter not in self._gradients for parameter in outlasting):
            raise RuntimeError("a parameter gets a gradient that got none before")
        for parameter in outlasting:
            place = self._gradients[parameter]
            if parameter.grad is not place:
                parameter.grad = place.copy_(parameter.grad)
        return loss.detach(), summed

    @staticmethod
    def _copy(shape: _Shape, given: tuple) -> None:
        """To where graphs read it."""
        for place, tensor in zip(_tensors(shape.given), _tensors(given)):
            _torch.copy_into(place, tensor)

    def _replay(self, recorded: _Recorded) -> tuple[torch.Tensor, Parameters]:
        for parameter, gradient in recorded.gradients:
            parameter.grad = gradient
        self._recorded_optimizer.move_rates()
        with self._as_a_whole():
            recorded.graph.replay()
        recorded.replays += 1
        increment_version(recorded.changed)
        for (part, name), tensor in recorded.left.items():
            vars(part)[name] = tensor
        return recorded.loss.clone(), recorded.summed

    def _turn_off(self, reason: str) -> None:
        self.reason = reason
        log.warning("no CUDA graph of the whole step: %s", reason)
        self._forget()
        self._memory = self.measured_bytes = None
        if self.accumulate == 1:
            self._gradients.clear()
        for shape in self._shapes.values():
            shape.given = shape.state = None

    def _forget(self) -> None:
        """All recordings: what is another step now runs as it is first, so that its state is made outside of them."""
        self._in_vain = 0
        for shape in self._shapes.values():
            shape.forget()

    def _adopt_optimizer(self) -> None:
        self._recorded_optimizer.adopt()
        self._forget()

    def _shape_of(self, given: tuple) -> _Shape:
        leaves, spec = tree_flatten(given)
        key = (repr(spec), *((tuple(t.shape), t.stride(), t.dtype, t.device) if isinstance(t, torch.Tensor) else repr(t)
                       for t in leaves), torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
        self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        while len(self._shapes) > self._most_shapes:
            self._shapes.popitem(last=False)
        return self._shapes[key]


def _has_graphs(device: torch.device) -> bool:
    return device.type == "cuda"


def _alive(ref: weakref.ref) -> torch.Tensor | None:
    tensor = ref()
    if tensor is not None:
        tensor._fix_weakref()  # where C++ alone held it
    return tensor


def _version(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None or tensor.is_inference() else tensor._version


def _empty_as(leaf: Any) -> Any:
    """A tensor that lies as this one; others as they are."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)


def _tensors(given: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]


def _only_device(model: nn.Module) -> torch.device:
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        raise RepriseError(f"reprise.Step wants a model on one device, not on {', '.join(sorted(map(str, devices)))}"
                           if devices else "reprise.Step wants a model that has parameters")
    return devices.pop()
