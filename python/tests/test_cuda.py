# SPDX-License-Identifier: Apache-2.0
"""On a GPU: the same bits as plain training by deterministic kernels, budgets kept, running out of memory survived."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
from torch import nn

from gpu import GPU, LARGE, NEEDS_A_GPU, SMALL, budget_of, if_deterministic, moved, trained_as_plainly, whole

import reprise
from cases import Case, squares, tensors
from exactness import STEPS, calls_of, difference, say_at_once, train, twins
from models import Recurrent
from reprise.solving import Search, ask

pytestmark = NEEDS_A_GPU


# cuDNN's own dropout is refused; without it, its recurrent layers are planned.
RECURRENT = {f"{kind.__name__} {layers} {both}": Case(
                 lambda kind=kind, layers=layers, both=both: Recurrent(kind, 12, layers, 0.0, both),
                 tensors(8, 7, 8), squares)
             for kind in (nn.LSTM, nn.GRU, nn.RNN) for layers in (1, 2) for both in (False, True)}


@pytest.mark.parametrize("budget", ["70%", "min"])
@pytest.mark.parametrize("name", [*SMALL, *RECURRENT])
def test_trains_bit_for_bit_as_plainly(name, budget):
    try:
        trained_as_plainly(moved((SMALL | RECURRENT)[name]), budget, "native", STEPS, if_deterministic)
    except reprise.InfeasibleBudget as error:
        assert budget == "70%"
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dropout_between_the_layers_of_cudnn_is_refused_and_without_cudnn_exact(kind):
    case = moved(Case(lambda: Recurrent(kind), tensors(8, 7, 8), squares))
    with pytest.raises(reprise.CaptureError, match="cuDNN's dropout"):
        train(reprise.compile(twins(case)[1], "60%"), case)
    with torch.backends.cudnn.flags(enabled=False):
        expected = train(twins(case)[0], case)
        assert difference(expected, train(reprise.compile(twins(case)[1], "min"), case)) is None


def test_weights_of_cudnn_that_lie_elsewhere_are_flattened_first():
    case = moved(Case(lambda: Recurrent(nn.LSTM, 12, 2, 0.0), tensors(8, 7, 8), squares))
    plain, other = twins(case)
    compiled = reprise.compile(other, "min")
    train(compiled, case)
    for model in (plain, other):
        with torch.no_grad():
            nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(plain.parameters()).clone(), model.parameters())
    with pytest.raises(reprise.CaptureError, match="flatten_parameters"):
        train(compiled, case)
    for model in (plain, other):
        model.cells.flatten_parameters()
    assert (found := difference(train(plain, case), train(compiled, case))) is None, found


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("share", [0.8, 0.6])
def test_stays_inside_a_budget_of_bytes(name, share):
    case = moved(LARGE[name])
    plain, other = twins(case)
    compiled = reprise.compile(other, budget_of(case, plain, share), executor="native")
    for _ in range(2):
        train(compiled, case)
        report = compiled.report()
        assert report.measured_bytes <= report.budget_bytes
        assert report.measured_bytes == pytest.approx(report.predicted_bytes, rel=0.02)


class Deep(nn.Module):
    """Batch norm and dropout on wide layers: no convolutions, whose algorithms depend on the memory there is."""

    def __init__(self, layers: int = 12, width: int = 512):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU(),
                                                  nn.Dropout(0.1)) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


DEEP = {"deep": whole(Case(Deep, tensors(8192, 512), squares)), "gpt2": whole(LARGE["gpt2"])}


# GPT-2 at 0.6 is not among them: its second step runs out even by the smallest plan, whose bytes would fit. Why is not
# known; holes between the allocator's blocks are suspected.
@pytest.mark.parametrize("name, share", [("deep", 0.9), ("deep", 0.75), ("deep", 0.6), ("gpt2", 0.9), ("gpt2", 0.75)])
def test_a_step_that_runs_out_of_memory_is_run_again_by_a_tighter_plan(name, share):
    """The device has less than the budget says: found out in forward, in backward, or once there are momenta."""
    case = moved(DEEP[name])
    plain, other = twins(case)
    expected = train(plain, case)
    del plain
    gc.collect()
    torch.cuda.empty_cache()
    base = torch.cuda.memory_allocated()
    roomy = reprise.compile(twins(case)[0], "100%")
    train(roomy, case)
    used = roomy.report().measured_bytes - base
    del roomy
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    there = torch.cuda.memory_reserved() + int(share * used)
    torch.cuda.set_per_process_memory_fraction(there / torch.cuda.get_device_properties(GPU).total_memory)
    try:
        compiled = reprise.compile(other, "100%")
        taken = train(compiled, case)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert (found := difference(expected, taken)) is None, found
    assert compiled.report().recomputed > 0


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Dropout(0.3), nn.Linear(1024, 10)).to(GPU)


def test_what_cublas_allocates_once_is_no_workspace_of_what_multiplies_first():
    """Else it would be most of a small network's activations, and no plan would be within a share of them."""
    torch._C._cuda_clearCublasWorkspaces()
    face = reprise.compile(small(), "80%", executor="native")
    for _ in range(4):
        face(torch.randn(512, 256, device=GPU)).square().mean().backward()
    report = face.report()
    assert report.plain_bytes - report.resident_bytes < 16 << 20
    assert report.measured_bytes <= report.budget_bytes


def test_a_small_step_is_recorded_within_a_share():
    torch._C._cuda_clearCublasWorkspaces()
    model = small()
    step = reprise.Step(model, nn.functional.cross_entropy, torch.optim.AdamW(model.parameters(), fused=True), "80%")
    for _ in range(12):
        step(torch.randn(512, 256, device=GPU), torch.randint(10, (512,), device=GPU))
    assert step.reason is None and step.measured_bytes is not None


def normalized() -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
                           for _ in range(6)])


@pytest.mark.parametrize("pixels", [56, 28])
@pytest.mark.parametrize("executor", ["native", "cuda_graph", "fx"])
def test_batch_norms_run_again_by_their_statistics(executor, pixels):
    case = moved(whole(Case(normalized, tensors(32, 32, pixels, pixels), squares)))
    plain, other = twins(case)
    compiled = reprise.compile(other, "min", executor=executor)
    expected, taken = train(plain, case), train(compiled, case)
    assert (found := difference(expected, taken)) is None, found
    ran = [op for op, _ in calls_of(compiled)]
    assert ran.count("reprise::normalize") > 0 and ran.count("aten::cudnn_batch_norm") == 6
    assert ran.count("aten::relu_") == 6  # each in a first run: what runs again is rectified as it is normalised
    if executor != "fx":  # which measures nothing
        assert compiled.report().measured_bytes == pytest.approx(compiled.report().predicted_bytes, rel=0.02)


def in_three_kernels(x, weight, bias, mean, scale, addend, relu) -> torch.Tensor:
    y = torch.batch_norm_elemt(x, weight, bias, mean, scale, 0.0)
    y = y if addend is None else y.add_(addend)
    return y.relu_() if relu else y


@pytest.mark.parametrize("shape", [(32, 64, 56, 56), (4, 6, 7, 7), (5, 3, 1, 3), (2, 3, 10), (7, 5)])
@pytest.mark.parametrize("images, weights", [(torch.float32, torch.float32), (torch.float16, torch.float32),
                                             (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16)])
def test_normalize_makes_the_bits_of_three_kernels(shape, images, weights):
    def drawn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(size, device=GPU).to(dtype)

    def beside(tensor: torch.Tensor) -> torch.Tensor:
        """The same numbers, one number further on in memory."""
        room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=GPU)
        return room[1:].view(tensor.shape).copy_(tensor)

    x, other = drawn(*shape, dtype=images), drawn(*shape, dtype=images)
    x.view(-1)[::17] = float("nan")
    weight, bias = drawn(shape[1], dtype=weights), drawn(shape[1], dtype=weights)
    mean, scale = drawn(shape[1]), drawn(shape[1]).abs()
    for addend, relu, affine in itertools.product((None, other), (False, True), ((weight, bias), (None, None))):
        expected = in_three_kernels(x, *affine, mean, scale, addend, relu)
        for given, added in ((x, addend), (beside(x), addend), (x, addend if addend is None else beside(addend))):
            found = torch.ops.reprise.normalize(given, *affine, mean, scale, added, relu, False)
            assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8)), (addend is None, relu)


@pytest.mark.parametrize("shape, folded", [((32, 256, 14, 14), True), ((32, 2048, 7, 7), True), ((32, 64, 28, 28), True),
                                           ((32, 64, 56, 56), False), ((64, 64, 32, 32), False)])
def test_normalize_makes_the_bits_of_cudnn(shape, folded):
    x = torch.randn(shape, device=GPU) * 3 + 8
    weight, bias = (torch.randn(shape[1], device=GPU) for _ in range(2))
    running = torch.zeros(shape[1], device=GPU), torch.ones(shape[1], device=GPU)
    expected, mean, scale, _ = torch.ops.aten.cudnn_batch_norm(x, weight, bias, *running, True, 0.1, 1e-5)
    found = torch.ops.reprise.normalize(x, weight, bias, mean, scale, None, False, folded)
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("change", [
    {"x": torch.zeros(2, 4, 3, 3).to(memory_format=torch.channels_last)}, {"x": torch.zeros(2, 4, 3, 3).double()},
    {"addend": torch.zeros(2, 4, 3)}, {"addend": torch.zeros(2, 4, 3, 3).half()}, {"mean": torch.zeros(3)},
    {"scale": torch.zeros(4).half()}, {"weight": torch.zeros(4).half()}])
def test_normalize_refuses_what_it_does_not_know(change):
    given = {"x": torch.zeros(2, 4, 3, 3), "weight": None, "bias": None, "mean": torch.zeros(4),
             "scale": torch.zeros(4), "addend": None} | change
    with pytest.raises(RuntimeError, match="normalize wants"):
        torch.ops.reprise.normalize(**{name: None if t is None else t.to(GPU) for name, t in given.items()}, relu=True,
                                    folded=False)


def convolutions() -> nn.Module:
    """Like the first layers of VGG: a tensor is 98 MiB, and so are the copies of it that cuDNN makes."""
    return nn.Sequential(*[nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()) for _ in range(4)])


@pytest.mark.parametrize("executor", ["native", "cuda_graph"])
def test_convolutions_run_in_parts_unless_bits_are_to_be_the_same(executor):
    case = moved(whole(Case(convolutions, tensors(32, 64, 112, 112), squares)))
    plans = []
    for is_deterministic in (True, False):
        torch.use_deterministic_algorithms(is_deterministic)
        plain, other = twins(case)
        compiled = reprise.compile(other, "min", executor=executor)
        expected, taken = train(plain, case), train(compiled, case)
        report = compiled.report()
        assert report.measured_bytes == pytest.approx(report.predicted_bytes, rel=0.02)
        if is_deterministic:
            assert (found := difference(expected, taken)) is None, found
        for name, tensor in expected[0].tensors.items():
            if name.startswith("gradient"):
                assert torch.allclose(tensor, taken[0].tensors[name], rtol=0.02, atol=1e-4), name
        plans.append(compiled._reprise_state.facts[0].plan)
    usual, other = plans
    assert not usual.in_parts and other.in_parts and other.peak < 0.8 * usual.peak
    step = compiled._reprise_state.facts[0].step
    as_large, _ = step.plan_within(usual.peak, Search(seconds=2))
    whole_ops = ask(step.graph, usual.peak, Search(seconds=2))
    assert whole_ops["steps"] is None or as_large.cost <= whole_ops["cost"]
    assert as_large.in_parts or as_large.cost == whole_ops["cost"]  # whole, where that takes no more time


def test_convolutions_are_profiled_inside_a_budget_in_bytes(fresh_cache):
    """In parts, where there is no room for one that is whole."""
    torch.use_deterministic_algorithms(False)
    model, x = whole(Case(convolutions, None, squares)).build().to(GPU), torch.randn(32, 64, 112, 112, device=GPU)
    budget = reprise.memory.in_use(GPU) + 6 * x.nbytes
    compiled = reprise.compile(model, budget, executor="native")
    with reprise.memory.measure(GPU) as taken:
        compiled(x).backward()
    assert taken.peak <= budget
    assert compiled.report().convolutions_in_parts > 0


@pytest.mark.parametrize("executor", ["native", "cuda_graph"])
@pytest.mark.parametrize("name", ["resnet", "convolutions"])
def test_both_gradients_of_convolutions_at_once_are_eagers(executor, name, monkeypatch):
    say_at_once(monkeypatch)
    case = whole(LARGE["resnet"]) if name == "resnet" else whole(Case(convolutions, tensors(4, 64, 28, 28), squares))
    compiled = trained_as_plainly(moved(case), "min", executor, 6)
    assert compiled.report().halves_at_once > 0 and compiled.report().executor == executor


def norms() -> nn.Module:
    """Of few channels and many pixels."""
    return nn.Sequential(nn.BatchNorm2d(32), nn.Tanh(), nn.BatchNorm2d(32), nn.Tanh())


@pytest.mark.parametrize("executor", ["native", "cuda_graph"])
@pytest.mark.parametrize("cudnn", [True, False])
def test_batch_norms_run_in_parts_unless_bits_are_to_be_the_same(executor, cudnn):
    case = moved(whole(Case(norms, tensors(32, 32, 112, 112), squares)))
    for is_deterministic in (True, False):
        torch.use_deterministic_algorithms(is_deterministic)
        with torch.backends.cudnn.flags(enabled=cudnn, deterministic=is_deterministic):
            plain, other = twins(case)
            compiled = reprise.compile(other, "100%", executor=executor)
            expected, taken = train(plain, case), train(compiled, case)
        counts = {parts for _, parts in calls_of(compiled)}
        if is_deterministic:
            assert (found := difference(expected, taken)) is None, found
            assert counts == {1}
        else:
            assert max(counts) > 1
            for step, other_step in zip(expected, taken):
                for name, tensor in step.tensors.items():
                    off = (other_step.tensors[name].double() - tensor.double()).abs().max()
                    assert off <= 1e-4 * tensor.double().abs().max(), name
