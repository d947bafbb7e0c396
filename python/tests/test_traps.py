# SPDX-License-Identifier: Apache-2.0
"""What once went wrong without a word, or went down: each stays mended."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import (register_module_forward_hook, register_module_forward_pre_hook,
                                     register_module_full_backward_hook, register_module_full_backward_pre_hook)

import reprise
from exactness import QUICK, both, compiled, loop
from reprise.kernels import captured_under, kernel_settings


class Net(nn.Module):
    def __init__(self, width: int = 64, layers: int = 6):
        super().__init__()
        parts = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)]
        self.body, self.head = nn.Sequential(*parts), nn.Linear(width, 4)

    def forward(self, x):
        return self.head(self.body(x))


def batch(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (256, 64)), generator=torch.Generator().manual_seed(3))


class ReadsThenCounts(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        y = self.linear(x - self.seen)
        self.seen.add_(1)
        return y


class OwnConstant(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        scale = torch.tensor([1.0, 2.0, 3.0])
        scale += 1
        return self.linear(x) * scale


class ReturnsAView(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        y = x.t()
        return y * self.weight, y


@pytest.mark.parametrize("build", [ReadsThenCounts, OwnConstant, ReturnsAView])
@pytest.mark.parametrize("loss", [torch.sum, lambda out: out.pow(2).mean()], ids=["summed", "squared"])
def test_each_step_sees_inputs_and_constants_as_plain_training_does(build, loss):
    plain = build()
    compiled = reprise.compile(copy.deepcopy(plain), "min", **QUICK)
    for _ in range(3):
        for model in (plain, compiled):
            model.zero_grad()
            out = model(batch(2, 3))
            loss(out[0] if isinstance(out, tuple) else out).backward()
        for (name, a), b in zip(plain.named_parameters(), compiled.parameters()):
            assert torch.equal(a.grad, b.grad), name


def test_a_forward_hook_that_comes_later_is_run():
    plain = Net()
    compiled = reprise.compile(plain, "min", **QUICK)
    compiled(batch()).sum().backward()
    plain.body[1].register_forward_hook(lambda module, inputs, out: out * 5)
    assert torch.equal(compiled(batch()), plain(batch()))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_backward_hook_on_a_part_is_refused(when):
    model = Net()
    compiled = reprise.compile(model, "min", **QUICK)
    if when == "after":
        compiled(batch()).sum().backward()
    model.body[2].register_full_backward_hook(lambda *_: None)
    with pytest.raises(reprise.CaptureError, match="body.2.*backward hook"):
        compiled(batch())


def test_planning_leaves_each_part_in_its_mode():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
    model[1].eval()
    reprise.plan(model, batch(), "min", **QUICK)
    assert model.training and not model[1].training


def test_a_step_that_dies_with_an_exception_in_flight_harms_nobody():
    compiled = reprise.compile(Net(), "min", **QUICK)
    with pytest.raises(ZeroDivisionError):
        compiled(batch()) / [1][0] + 1 // 0
    compiled(batch()).sum().backward()


def test_autocast_with_norms_is_exact():
    plain = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    compiled = reprise.compile(copy.deepcopy(plain), "min", **QUICK)
    for model in (plain, compiled):
        with torch.autocast("cpu", torch.bfloat16):
            out = model(batch(4, 8))
        out.float().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), compiled.parameters()))


class Words(nn.Module):
    def __init__(self, words: int = 4000, width: int = 64):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.body = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)])

    def forward(self, x):
        return self.head(self.body(self.embed(x)))


def test_an_unseen_loss_is_no_reason_to_refuse_what_plain_training_takes():
    tokens, targets = torch.arange(256).view(8, 32), torch.arange(256)
    model = Words()
    with reprise.memory.measure() as memory:
        F.cross_entropy(model(tokens).flatten(0, 1), targets).backward()
    model.zero_grad()
    compiled = reprise.compile(model, memory.peak, **QUICK)
    for _ in range(3):
        model.zero_grad()
        with reprise.memory.measure() as mine:
            F.cross_entropy(compiled(tokens).flatten(0, 1), targets).backward()
        assert mine.peak <= memory.peak
    report = compiled.report()
    assert report.measured_bytes == pytest.approx(report.predicted_bytes, rel=0.02)


def test_one_unusual_step_does_not_spoil_the_next():
    model, x = Net(), batch()
    compiled = reprise.compile(model, int(reprise.plan(model, x, "min", **QUICK).predicted_bytes * 1.3), **QUICK)
    out = compiled(x)
    out.pow(2).mean().backward(retain_graph=True)
    out.sum().backward()
    del out
    model.zero_grad()
    compiled(x).pow(2).mean().backward()


def test_a_plan_from_a_file_serves_other_backwards_too(tmp_path):
    model, x = Net(), batch()
    reprise.plan(model, x, "50%", **QUICK).save(tmp_path / "graph.json", tmp_path / "plan.json")
    compiled = reprise.compile(model, plan=tmp_path / "plan.json", **QUICK)
    for _ in range(2):  # expanded gradients; then gradients that are there
        compiled(x).sum().backward()


def test_graphs_that_do_not_fit_together_are_refused():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.between, self.second = Net(), nn.Linear(4, 64), Net()

        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(self.between(x))

    model, x = Broken(), batch()
    budget = reprise.memory.in_use() + 250_000
    compiled = reprise.compile(model, budget, **QUICK)
    with pytest.raises(reprise.InfeasibleBudget) as error:
        for _ in range(3):
            model.zero_grad()
            compiled(x).pow(2).mean().backward()
    assert error.value.smallest > budget


def test_a_part_cut_from_a_compiled_module_is_plain():
    compiled = reprise.compile(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), "min", **QUICK)
    assert torch.equal(compiled[:1](batch()), compiled[0](batch()))


def test_anomaly_detection_may_be_on():
    compiled = reprise.compile(Net(), "min", **QUICK)
    with torch.autograd.set_detect_anomaly(True):
        compiled(batch()).sum().backward()


def test_a_backward_that_can_not_be_is_told_in_words():
    """Eager would see it, if that output were used."""
    class Overwritten(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            h = self.layer(x)
            unused = h.sin()
            return h.mul_(2), unused

    with pytest.raises(reprise.CaptureError, match="backward can't be captured: .* modified by an inplace operation"):
        compiled(Overwritten())(torch.randn(4, 8))


def test_forward_mode_derivatives_are_refused():
    compiled = reprise.compile(Net(), "min", **QUICK)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(reprise.RepriseError, match="forward-mode"):
        compiled(torch.autograd.forward_ad.make_dual(batch(), batch()))


def test_the_backend_trains_an_lstm_inside_its_budget():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.LSTM(8, 32, 2, batch_first=True)

        def forward(self, x):
            return self.cells(x)[0]

    peaks = []
    for wrap in (lambda m: m, lambda m: torch.compile(m, backend="reprise", options={"budget": "min", **QUICK})):
        model = wrap(Cells())
        with reprise.memory.measure() as memory:
            model(batch(16, 50, 8)).pow(2).mean().backward()
        peaks.append(memory.extra)
    assert peaks[1] < peaks[0]


def test_a_compiled_part_under_checkpoint_trains_exactly():
    class Checkpoints(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.1)) for _ in range(2))

        def forward(self, x):
            for part in self.parts:
                x = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
            return x

    def compile_parts(model):
        for i, part in enumerate(model.parts):
            model.parts[i] = compiled(part)
        return model

    both(Checkpoints, loop(), wrap=compile_parts)


def test_hooks_on_saved_tensors_do_not_reach_into_the_capture():
    plain = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    twin = copy.deepcopy(plain)
    model = compiled(twin)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        out = model(batch(1, 4, 8))
    out.sum().backward()
    plain(batch(1, 4, 8)).sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), twin.parameters()))


def test_the_backend_plans_for_each_number_that_a_model_is_given():
    class Cuts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x, k):
            return torch.triu(self.linear(x), k)

    plain = Cuts()
    model = torch.compile(copy.deepcopy(plain), backend="reprise", options={"budget": "100%", "plan_iterations": 100})
    for k in (1, 2, 3, 5):
        assert torch.equal(plain(batch(k, 8, 8), k), model(batch(k, 8, 8), k)), k


def test_the_backend_refuses_sizes_that_may_change():
    model = torch.compile(nn.Linear(8, 8), backend="reprise", dynamic=True, options={"budget": "100%"})
    with pytest.raises(Exception, match="dynamic=False"):
        model(batch(1, 4, 8))


def test_positions_of_several_sequences_are_noticed_where_one_is_assumed():
    """One row of positions for a whole batch: eager looks at it; a plan assumes, and asserts, what it looks for."""
    from models import gpt2

    class Positioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = gpt2(cache=False).model

        def forward(self, tokens, positions):
            return self.model(input_ids=tokens, position_ids=positions).logits.square().mean()

    model = compiled(Positioned())
    tokens = torch.randint(50, (2, 16), generator=torch.Generator().manual_seed(1))
    model(tokens, torch.arange(16)[None]).backward()
    with pytest.raises(RuntimeError, match="position_ids are of several sequences"):
        model(tokens, torch.arange(8).repeat(2)[None])


class ReturnsNothing(nn.Module):
    """An operation without results."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        parts = [self.one(x), self.two(x)]
        torch._foreach_mul_(parts, 2.0)
        return parts[0].tanh() + parts[1].sigmoid()


def test_operations_without_results_are_run():
    def step(model, i):
        out = model(batch(16, 8))
        out.square().mean().backward()
        yield out

    both(ReturnsNothing, loop(step))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = self.project(x).view(2, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_attention_runs_by_the_kernels_that_are_allowed_now():
    def step(model, i):
        with sdpa_kernel(SDPBackend.MATH if i % 2 else SDPBackend.FLASH_ATTENTION):
            out = model(batch(2, 128, 64))
        out.square().sum().backward()
        yield out

    both(Attends, loop(step, 4))


def test_the_order_of_attentions_kernels_is_part_of_what_is_captured():
    usual = kernel_settings()
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        first = kernel_settings()
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        assert kernel_settings() != first
        with captured_under(first):
            assert kernel_settings() == first
    assert kernel_settings() == usual


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
def test_a_hook_of_all_modules_that_comes_later_is_run(register):
    def step(model, i):
        handle = register(lambda _, given, *out: (out or given)[0] * 1.25) if i in (1, 2) else None
        out = model(batch(64, 64))
        out.square().mean().backward()
        if handle is not None:
            handle.remove()
        yield out

    both(Net, loop(step, 4))


@pytest.mark.parametrize("register", [register_module_full_backward_hook, register_module_full_backward_pre_hook])
def test_a_backward_hook_of_all_modules_is_refused(register):
    face = compiled(Net())
    face(batch(64, 64)).sum().backward()
    handle = register(lambda *_: None)
    with pytest.raises(reprise.CaptureError, match="of all modules .* can't be captured"):
        face(batch(64, 64))
    handle.remove()
    face(batch(64, 64)).sum().backward()


def test_a_compiled_part_of_a_compiled_model_is_named():
    model = Net()
    model.body = compiled(model.body)
    with pytest.raises(reprise.CaptureError, match="part 'body' is compiled already"):
        compiled(model)(batch(64, 64))


@pytest.mark.parametrize("backend", ["torch.backends", "torch.backends.cudnn.conv", "torch.backends.cuda.matmul"])
def test_precision_may_be_said_in_either_way(backend):
    """After the newer way, PyTorch refuses to tell of the older one."""
    said = f"import torch; {backend}.fp32_precision = 'ieee'"
    run = "import reprise; reprise.compile(torch.nn.Linear(2, 2), '100%')(torch.ones(2, 2)).sum().backward()"
    subprocess.run([sys.executable, "-c", f"{said}; {run}"], check=True)


class Twins(nn.Module):
    """One batch norm for two inputs, the first of which waits for the second to be added."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.BatchNorm1d(8), nn.Linear(8, 8)

    def forward(self, x):
        first, second = self.norm(torch.tanh(x)), self.norm(torch.tanh(3 * x) + 1)
        first += self.mix(second)
        return first.relu_()


class Turned(nn.Module):
    """What follows a batch norm, or another layer, depends on how its result lies."""

    def __init__(self, layer: nn.Module, is_copied: bool):
        super().__init__()
        self.layer, self.is_copied, self.mix, self.out = layer, is_copied, nn.Linear(8, 8), nn.Linear(48, 3)

    def forward(self, x):
        y = self.layer(torch.tanh(self.mix(x)).transpose(1, 2))
        y = y.transpose(1, 2) if self.is_copied else y
        z = y.reshape(y.shape[0], -1)
        z.mul_(3)
        return self.out(z) + y.square().mean()


LAYERS = {"norm": lambda: nn.BatchNorm1d(8), "rrelu": nn.RReLU,
          "norm of images": lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.BatchNorm2d(2), nn.Flatten(1, 2))}


@pytest.mark.parametrize("model", [
    Twins, *(pytest.param(lambda name=name, is_copied=is_copied: Turned(LAYERS[name](), is_copied),
                          id=f"{name}, {'copied' if is_copied else 'viewed'}")
             for name in LAYERS for is_copied in (False, True))])
@pytest.mark.parametrize("budget", ["100%", "min"])
def test_batch_norms_count_in_order_and_their_results_lie_as_eagers(model, budget):
    def step(face, i):
        out = face(batch(16, 8) if model is Twins else batch(5, 6, 8))
        out.square().sum().backward()
        yield out
        yield from [buffer.clone() for buffer in face.buffers()]

    both(model, loop(step), lambda plain: compiled(plain, budget))
