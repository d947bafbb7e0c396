# SPDX-License-Identifier: Apache-2.0
"""Steps run as CUDA graphs: bit for bit plain training, whatever people do around a step."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gpu import GPU, LARGE, NEEDS_A_GPU, SMALL, budget_of, if_deterministic, moved, trained_as_plainly, whole

import reprise
from cases import Case, classes, squares, tensors, tokens
from exactness import QUICK, SEED, both, data, loop, note, sgd, train, twins
from models import DenseNet, ResNet, gpt2

pytestmark = NEEDS_A_GPU

STEPS = 6  # one or two run as they are
UNGRAPHED = {"moving average": "forward returns an input or a constant"}


@pytest.mark.parametrize("budget", ["100%", "min"])
@pytest.mark.parametrize("name", SMALL)
def test_graphs_train_bit_for_bit_as_plainly(name, budget):
    report = trained_as_plainly(moved(SMALL[name]), budget, "cuda_graph", STEPS, if_deterministic).report()
    assert (report.executor, report.ungraphed) == (("native", UNGRAPHED[name]) if name in UNGRAPHED else
                                                   ("cuda_graph", None))


def graphed(model: nn.Module, budget: int | str = "min", **options) -> nn.Module:
    return reprise.compile(model, budget, executor="cuda_graph", **QUICK, **options)


def net(drop: float = 0.1) -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(drop))
                           for _ in range(6)]).to(GPU)


def batch(i: int, rows: int = 256) -> torch.Tensor:
    return torch.randn(rows, 64, generator=torch.Generator().manual_seed(i)).to(GPU)


def ran_by(face: nn.Module) -> str:
    """What ran the last step; where no graphs did, why not."""
    report = face.report()
    return report.ungraphed or report.executor


def test_outputs_and_gradients_survive_the_next_steps():
    kept = []

    def step(model, i):
        out = model(batch(i))
        kept.append(out)
        out.square().mean().backward()
        kept.append(next(model.parameters()).grad)
        yield out

    assert ran_by(both(net, loop(step, STEPS), graphed)) == "cuda_graph"
    half = len(kept) // 2
    for plainly, by_graphs in zip(kept[:half], kept[half:]):
        assert torch.equal(plainly, by_graphs)


class Conjugate(nn.Module):
    """Its weight's gradient, and an output, are numbers that lie as their conjugates."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64, dtype=torch.cfloat))

    def forward(self, x):
        y = torch.tanh(torch.complex(x, x.flip(1)) @ self.weight.conj())
        return y, y.conj()


def test_conjugates_are_numbers_too():
    def step(model, i):
        y, conjugate = model(batch(i))
        (y.abs().square().mean() + conjugate.imag.mean()).backward()
        yield y, conjugate

    assert ran_by(both(lambda: Conjugate().to(GPU), loop(step, STEPS), graphed)) == "cuda_graph"


def test_running_statistics_may_move_between_a_pass_in_eval_mode_and_its_backward():
    """They are not counted as changes, by eager or by graphs."""
    def step(model, i):
        model.eval()
        first = model(batch(i))
        model.train()
        second = model(batch(i + 50))
        (first.square().mean() + second.square().mean()).backward()
        yield first, second

    assert ran_by(both(lambda: net(0.0), loop(step, STEPS), graphed)) == "cuda_graph"


def test_gradients_accumulate():
    def step(model, i):
        for part in range(3):
            out = model(batch(3 * i + part))
            out.square().mean().backward()
            yield out

    assert ran_by(both(net, loop(step, STEPS), graphed)) == "cuda_graph"


def test_gradients_that_are_zeroed_in_place():
    def run(model):
        update, taken = sgd(model), []
        for i in range(STEPS):
            update.zero_grad(set_to_none=False)
            model(batch(i)).square().mean().backward()
            taken.append(note(model))
            update.step()
        return taken

    assert ran_by(both(net, run, graphed)) == "cuda_graph"


def test_several_shapes_in_turn():
    def step(model, i):
        out = model(batch(i, rows=(256, 128, 64)[i % 3]))
        out.square().mean().backward()
        yield out

    assert ran_by(both(net, loop(step, 15), graphed)) == "cuda_graph"


def test_memory_of_a_module_that_goes_while_something_is_traced_is_let_go_later():
    model, other = net(), graphed(net())
    face = graphed(model)
    for i in range(STEPS):
        model.zero_grad()
        face(batch(i)).square().mean().backward()
    memories, gradients = face._reprise_state._graph_memories, [parameter.grad for parameter in model.parameters()]
    expected = [gradient.clone() for gradient in gradients]
    assert ran_by(face) == "cuda_graph" and memories.reserved(GPU) > 0
    with FakeTensorMode():
        del face
        gc.collect()
    other(batch(0))
    assert memories.reserved(GPU) == 0
    assert all(torch.equal(a, b) for a, b in zip(gradients, expected))


def test_inputs_that_lie_elsewhere_each_time():
    held = []

    def step(model, i):
        held.append(batch(i))
        out = model(held[-1])
        out.square().mean().backward()
        yield out

    assert ran_by(both(net, loop(step, STEPS), graphed)) == "cuda_graph"


def test_an_input_that_wants_a_gradient():
    def step(model, i):
        x = batch(i).requires_grad_()
        out = model(x)
        out.square().mean().backward()
        yield out, x.grad

    assert ran_by(both(net, loop(step, STEPS), graphed)) == "cuda_graph"


def test_seeds_set_between_steps_and_dropout_outside():
    def step(model, i):
        if i % 2:
            torch.manual_seed(i)
        out = nn.functional.dropout(model(batch(i)), 0.3)
        out.square().mean().backward()
        yield out

    assert ran_by(both(net, loop(step, 2 * STEPS), graphed)) == "cuda_graph"


def test_inputs_that_nobody_holds_while_hooks_take_memory():
    """Backward is a graph for each stage then: what hooks take in between is not to lie where the input does."""
    rows = 8192

    def hook(gradient):
        torch.full((rows, 64), float("nan"), device=GPU)
        return gradient.clamp(-1, 1)

    def run(model):
        taken = []
        for parameter in model.parameters():
            parameter.register_hook(hook)
        for i in range(STEPS):
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
            model(batch(i, rows)).square().mean().backward()
            taken.append(note(model))
        return taken

    assert ran_by(both(net, run, graphed)) == "cuda_graph"


@pytest.mark.parametrize("kept, reason", [([4], "cuda_graph"), ([2, 3, 4], "retain_graph"),
                                          (range(8), "retain_graph")])
def test_a_backward_that_is_kept_is_no_graphs_matter(kept, reason):
    def step(model, i):
        out = model(batch(i))
        loss = out.square().mean()
        loss.backward(retain_graph=i in kept)
        if i in kept:
            loss.backward()
        yield out

    assert reason in ran_by(both(net, loop(step, 8), graphed))


def test_two_forwards_before_a_backward_fall_back():
    def step(model, i):
        out = model(batch(i))
        if i > 3:
            out = out + model(batch(100 + i))
        out.square().mean().backward()
        yield out

    assert "several forwards" in ran_by(both(net, loop(step, 12), graphed))


def test_a_forward_without_its_backward():
    def step(model, i):
        if i == 4:
            model(batch(50))
        out = model(batch(i))
        out.square().mean().backward()
        yield out

    assert ran_by(both(net, loop(step, 8), graphed)) == "cuda_graph"


def test_backward_of_one_of_two_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = net(), net()

        def forward(self, x):
            return self.one(x), self.two(x)

    def step(model, i):
        a, b = model(batch(i))
        ((a.sum() + b.sum()) if i < 5 or i > 7 else a.sum()).backward()
        yield a, b

    assert ran_by(both(lambda: Two().to(GPU), loop(step, 12), graphed)) == "cuda_graph"


class Waits(nn.Module):
    """Its forward asks the device how many there are: that can't be in a graph."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x):
        return self.inner(x)[torch.arange(4, device=x.device).repeat_interleave(
            torch.tensor([1, 2, 3, 4], device=x.device))]


def test_what_can_not_be_recorded_is_told():
    face = both(lambda: Waits().to(GPU), loop(lambda model, i: iter([model(batch(i)).sum().backward()]), STEPS),
                graphed)
    assert face.report().executor == "native" and ran_by(face) != "native"


PUBLISHED = {"resnet50": Case(ResNet, tensors(16, 3, 224, 224), classes),
             "densenet121": Case(lambda: DenseNet(drop=0.15), tensors(8, 3, 224, 224), classes),
             "gpt2": Case(lambda: gpt2(12, 768, 12, 50257, 1024), tokens(2, 1024, words=50257), classes)}


@pytest.mark.parametrize("executor", ["native", "cuda_graph", "fx"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_executor_trains_bit_for_bit_as_plainly(name, executor):
    assert trained_as_plainly(moved(PUBLISHED[name]), "min", executor, STEPS).report().executor == executor


@pytest.mark.parametrize("name", PUBLISHED)
def test_whole_steps_train_bit_for_bit_as_plainly(name):
    case, none = moved(PUBLISHED[name]), torch.zeros((), device=GPU)
    plain, other = twins(case)
    train(plain, case, STEPS)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
    step = reprise.Step(other, lambda out, target: case.loss(out), optimizer, "min", **QUICK)
    torch.manual_seed(SEED)
    for args, kwargs in data(case, STEPS):
        step(*args, none, **kwargs)
    assert step.reason is None and step.measured_bytes > 0  # it was recorded
    for (key, tensor), mine in zip(plain.state_dict().items(), other.state_dict().values()):
        assert torch.equal(tensor, mine), key


@pytest.mark.parametrize("executor", ["native", "cuda_graph", "fx"])
@pytest.mark.parametrize("precision", ["tf32", "autocast"])
def test_precisions_are_eagers(precision, executor):
    """TF32 in products and convolutions; bfloat16 where autocast takes it."""
    def step(model, i):
        images = torch.randn(16, 3, 64, 64, generator=torch.Generator().manual_seed(i)).to(GPU)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "autocast"):
            out = model(images)
        out.float().square().mean().backward()
        yield out

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        face = both(lambda: ResNet((2, 2), 32, 10).to(GPU), loop(step, STEPS),
                    lambda model: reprise.compile(model, "min", executor=executor, **QUICK))
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    assert face.report().executor == executor and face.report().recomputed > 0


@pytest.mark.parametrize("executor", ["native", "cuda_graph"])
def test_less_budget_never_takes_more(executor):
    case = moved(whole(LARGE["resnet"]))
    peaks = []
    for budget in (*(f"{percent}%" for percent in range(100, 55, -5)), "min"):
        torch._dynamo.reset()
        compiled = reprise.compile(twins(case)[1], budget, executor=executor, plan_seconds=2.0)
        train(compiled, case, STEPS)
        peaks.append(compiled.report().measured_bytes)
    assert peaks == sorted(peaks, reverse=True) and peaks[0] > peaks[-1]


BOUNDED = {"resnet": whole(LARGE["resnet"]), "gpt2": whole(LARGE["gpt2"]), "gpt2, loss outside": LARGE["gpt2"],
           "deep": Case(net, tensors(4096, 64), squares)}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("share", [0.9, 0.6])
def test_the_pool_stays_inside_a_budget_of_bytes(name, share):
    case = moved(BOUNDED[name])
    plain, other = twins(case)
    compiled = reprise.compile(other, budget_of(case, plain, share), executor="cuda_graph")
    del plain
    train(compiled, case, STEPS)
    report = compiled.report()
    assert report.executor == "cuda_graph"
    assert report.measured_bytes <= report.budget_bytes
    assert report.most_bytes <= report.budget_bytes  # that of the first step, which runs as it is, too
    assert report.measured_bytes == pytest.approx(report.predicted_bytes, rel=0.02)


def test_graphs_of_one_shape_make_room_for_the_first_step_of_another():
    model, reserved = graphed(net(), "100%"), {}
    for rows in (65536, 49152, 65536):
        torch.cuda.reset_peak_memory_stats()
        for i in range(3):
            loss = model(batch(i, rows)).sum()  # held while the other shape begins
            loss.backward()
        assert ran_by(model) == "cuda_graph"
        reserved[rows] = max(reserved.get(rows, 0), torch.cuda.max_memory_reserved())
    assert reserved[49152] <= 1.1 * reserved[65536]
    assert reserved[65536] <= 1.3 * model.report().measured_bytes
