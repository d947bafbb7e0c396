# SPDX-License-Identifier: Apache-2.0
"""Graph breaks, and what can't be captured."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reprise
from exactness import SEED, assert_same, batch, both, captures, compiled, loop, note, peak_of_a_step, stack, usual


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(8, 32), nn.Tanh()), nn.Linear(32, 4)


def test_a_broken_graph_trains_exactly():
    class Breaks(Layers):
        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(F.dropout(x, 0.3))

    assert captures(both(Breaks, loop())) == 2


def test_a_branch_on_data_is_followed():
    class Branches(Layers):
        def forward(self, x):
            return self.second(self.first(x)) if x.sum() > 0 else self.first(x)

    both(Branches, loop(usual(lambda model, i: model(batch(i).abs() * (1 if i % 2 else -1))), 4))


def test_a_shape_that_depends_on_data_is_left_to_eager():
    class Chooses(Layers):
        def forward(self, x):
            x = self.second(self.first(x))
            return x[x > 0]

    assert captures(both(Chooses, loop())) == 1


def test_a_generator_of_ones_own_is_left_to_eager():
    generator = torch.Generator()

    class Draws(Layers):
        def forward(self, x):
            return self.second(self.first(x + torch.randn(8, generator=generator)))

    def run(model):
        generator.manual_seed(1)
        return loop()(model)

    assert captures(both(Draws, run)) == 1


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = stack(), stack(drop=0.1)

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_a_broken_graph_shares_the_budget(share):
    def run(model):
        torch.manual_seed(SEED)
        return [peak_of_a_step(model, x) for _ in range(4)], note(model)

    x, plain = batch(1, 1024, 32), Broken()
    peaks, expected = run(plain)
    del plain
    budget = int(share * max(peaks))
    face = compiled(Broken(), budget)
    peaks, taken = run(face)
    assert max(peaks) <= budget and captures(face) == 2
    assert_same([expected], [taken])


def test_a_line_is_named_wherever_the_model_lies(tmp_path):
    """In a clone of this repository, for one."""
    (tmp_path / "reprise").mkdir()
    (tmp_path / "reprise" / "embedding.py").write_text(
        "import torch\nclass Embedding(torch.nn.Embedding):\n    def forward(self, x):\n        return super().forward(x)\n")
    spec = importlib.util.spec_from_file_location("embedding", tmp_path / "reprise" / "embedding.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    with pytest.raises(IndexError, match=r"embedding\.py:4"):
        compiled(nn.Sequential(module.Embedding(4, 8), nn.Linear(8, 4)))(torch.tensor([7]))


def test_a_sparse_gradient_is_refused():
    model = nn.Sequential(nn.Embedding(10, 8, sparse=True), nn.Linear(8, 4), nn.Tanh())
    with pytest.raises(reprise.CaptureError, match="sparse"):
        compiled(model)(torch.arange(6))


def test_an_error_of_an_operation_names_its_line():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(4, 8)

        def forward(self, tokens):
            return self.embed(tokens).tanh()

    face = compiled(Fails())
    face(torch.arange(4)).sum().backward()
    with pytest.raises(IndexError, match="test_breaks.py"):
        face(torch.arange(4) + 2)


class Words(nn.Module):
    """torch's own encoder looks at its mask: the graph breaks inside of torch's code."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.embed, self.body = nn.Linear(8, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.body(self.embed(x), mask))


def test_a_break_inside_of_torchs_own_code_leaves_nothing_to_eager():
    report = both(Words, loop(usual(lambda model, i: model(batch(i, 4, 8, 8))))).report()
    assert any("layers.1" in entry.module for entry in report.kept + report.dropped)


def test_a_budget_is_divided_anew_when_the_optimizer_has_its_state():
    plain = Broken()
    budget = reprise.memory.in_use() + peak_of_a_step(plain, batch(1, 1024, 32))
    model = compiled(plain, budget)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        assert peak_of_a_step(model, batch(1, 1024, 32)) <= budget
        optimizer.step()


def test_a_part_that_would_train_plainly_is_refused():
    class Averages(Layers):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.BatchNorm1d(32, momentum=None), nn.Linear(32, 32))  # reads how many there were

        def forward(self, x):
            return self.second(self.body(self.first(x)))

    model = compiled(Averages())
    for _ in range(2):
        with pytest.raises(reprise.CaptureError, match="would train plainly: that of 'body"):
            loop()(model)


def test_a_model_that_raised_trains_on():
    class Checks(Layers):
        def forward(self, x, mode="right"):
            if mode != "right":
                raise ValueError(f"{mode}?")
            return self.second(self.first(x))

    for modes in (("right", "wrong", "right"), ("wrong", "right")):
        model = compiled(Checks())
        for mode in modes:
            if mode == "wrong":
                with pytest.raises(ValueError, match="wrong\\?"):
                    model(batch(), mode)
            else:
                model(batch(), mode).sum().backward()
        assert captures(model) == 1


class Chooses(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.layer(x).tanh(), lambda x: x.sin(), (x,))


def test_a_branch_that_is_an_operation_is_refused():
    with pytest.raises(reprise.CaptureError, match=r"test_breaks.py:\d+: cond can't be planned"):
        reprise.compile(Chooses(), "min")(batch(0, 4, 8))


def test_the_fx_executor_refuses_several_graphs():
    with pytest.raises(reprise.CaptureError, match='executor="fx" runs models that are one graph'):
        compiled(Broken(), executor="fx")(batch(1, 4, 32))


class Drops(nn.Module):
    """Leaves layers out at random, which Dynamo gives the whole forward up for."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if torch.rand(()) < 0.5:
                x = layer(x)
        return self.layers[0](x)


def test_a_model_that_is_skipped_is_told_of_where_its_loss_is_captured():
    given = (batch(0), torch.zeros(len(batch(0)), dtype=torch.long))
    with pytest.raises(reprise.CaptureError, match="would train plainly: that of 'layers.0.weight'"):
        reprise.compile(Drops(), "min", loss=F.cross_entropy)(*given)
    with pytest.raises(reprise.CaptureError, match="nothing of Drops could be captured"):
        reprise.plan(Drops(), given, "min", loss=F.cross_entropy)
