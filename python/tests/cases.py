# SPDX-License-Identifier: Apache-2.0
"""Networks, and what to train them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn

from models import (Attention, DenseNet, FrozenBatchNorm, LayerNormed, MobileNet, MultiHead, PaddedWords, Recurrent,
                    ResNet, SqueezeExcite, TiedWords, UNet, bert, gpt2, normalised, vit)
from unusual_models import (Called, Checkpointed, CheckpointedNorm, Frozen, FrozenBelow, InPlace, InPlaceKept,
                            MovingAverage, OwnFunction, Pools, RandomOps, ReadThenChanged, ReplacedBuffer, Returns,
                            Shapes, Spectral, Transposed, TwoHeads, mlp)

Given = tuple[tuple, dict]
ONE, FEW, EVERY = ("min",), ("70%", "min"), ("80%", "60%", "40%", "min")  # budgets


@dataclass
class Case:
    """A network and its data. `loss` takes what the network returns."""

    build: Callable[[], nn.Module]
    given: Callable[[], Given]
    loss: Callable[[Any], torch.Tensor]
    recomputes: bool = True  # there is something that pays to be computed again
    budgets: tuple[str, ...] = EVERY
    long: bool = False


def tensors(*shape: int, dtype: torch.dtype = torch.float32, **kwargs) -> Callable[[], Given]:
    return lambda: ((torch.randn(*shape, dtype=dtype, **kwargs),), {})


def tokens(*shape: int, words: int = 40) -> Callable[[], Given]:
    return lambda: ((torch.randint(0, words, shape),), {})


def squares(out: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(out.float(), torch.full_like(out, 0.3, dtype=torch.float32))


def classes(out: torch.Tensor) -> torch.Tensor:
    """Cross entropy along the last dimension."""
    flat = out.flatten(0, -2)
    return F.cross_entropy(flat.float(), torch.arange(flat.shape[0], device=out.device) % flat.shape[1])


def pixels(out: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out, torch.zeros(out.shape[0], *out.shape[2:], dtype=torch.long, device=out.device))


def _channels_last() -> Given:
    return (torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last),), {}


def _with_gradient() -> Given:
    return (torch.randn(16, 8, requires_grad=True),), {}


def _called() -> Given:
    return (torch.randn(32, 8), 0.5), {"mask": torch.rand(32, 16) > 0.5, "double": True, "names": ("a", "b")}


CASES: dict[str, Case] = {
    "resnet": Case(lambda: ResNet((1, 1), 8, 10), tensors(4, 3, 32, 32), classes),
    "resnet channels last": Case(lambda: ResNet((1, 1), 8, 10).to(memory_format=torch.channels_last), _channels_last,
                                 classes, budgets=FEW),
    "densenet": Case(lambda: DenseNet((2, 2), 4, 8, 10, drop=0.15), tensors(2, 3, 32, 32), classes, budgets=FEW),
    "mobilenet": Case(MobileNet, tensors(2, 3, 32, 32), classes, budgets=FEW),
    "unet": Case(UNet, tensors(2, 3, 16, 16), pixels, budgets=FEW),
    "unet align false": Case(lambda: UNet(4, align=False), tensors(1, 3, 16, 16), pixels, budgets=ONE),
    "lstm": Case(lambda: Recurrent(nn.LSTM), tensors(4, 7, 8), squares, budgets=FEW),
    "lstm bidirectional": Case(lambda: Recurrent(nn.LSTM, bidirectional=True), tensors(4, 7, 8), squares, budgets=ONE),
    "gru": Case(lambda: Recurrent(nn.GRU), tensors(4, 5, 8), squares, budgets=ONE),
    "rnn": Case(lambda: Recurrent(nn.RNN), tensors(4, 5, 8), squares, budgets=ONE),
    "gpt2": Case(gpt2, tokens(2, 16), classes, budgets=FEW),
    "gpt2 without cache": Case(lambda: gpt2(cache=False), tokens(2, 16), classes, budgets=ONE, long=True),
    "bert": Case(bert, tokens(2, 16), classes, budgets=ONE),
    "vit": Case(vit, tensors(2, 3, 16, 16), classes, budgets=ONE),
    "mlp": Case(lambda: mlp(drop=0.1), tensors(64, 8), squares, budgets=FEW),
    "mlp drop 0.15": Case(lambda: mlp(drop=0.15), tensors(64, 8), squares, budgets=FEW),
    "mlp drop 0.45": Case(lambda: mlp(drop=0.45), tensors(64, 8), squares, budgets=FEW),
    "mlp double": Case(lambda: mlp().double(), tensors(64, 8, dtype=torch.float64), lambda out: out.pow(2).mean(), budgets=FEW),
    "mlp bf16": Case(lambda: mlp(drop=0.3).bfloat16(), tensors(64, 8, dtype=torch.bfloat16), squares),
    "mlp summed": Case(mlp, tensors(64, 8), lambda out: out.sum(), budgets=FEW),
    "tied weights": Case(TiedWords, tokens(4, 8), classes),
    "padded embeddings": Case(PaddedWords, tokens(32, 6, words=20), classes, budgets=FEW),
    "own function": Case(OwnFunction, tensors(32, 8), squares),
    "two heads": Case(TwoHeads, tensors(32, 8), lambda out: squares(out[0]) + out[1].mean(), budgets=FEW),
    "one head of two": Case(TwoHeads, tensors(256, 8), lambda out: squares(out[0])),
    "frozen layer": Case(Frozen, tensors(64, 8), squares),
    "frozen below": Case(FrozenBelow, tensors(64, 8), squares, budgets=FEW),
    "frozen batch norm": Case(FrozenBatchNorm, tensors(2, 3, 16, 16), squares, budgets=FEW),
    "in place": Case(InPlace, tensors(32, 8), squares),
    "in place on views": Case(InPlaceKept, tensors(32, 8), squares, budgets=FEW),
    "squeeze excite": Case(SqueezeExcite, tensors(2, 3, 12, 12), squares, budgets=FEW),
    "conv transpose": Case(Transposed, tensors(4, 3, 24, 24), squares, budgets=FEW),
    "group norm": Case(lambda: normalised(lambda n: nn.GroupNorm(2, n)), tensors(2, 3, 12, 12), squares, budgets=FEW),
    "instance norm": Case(lambda: normalised(lambda n: nn.InstanceNorm2d(n, affine=True, track_running_stats=True)),
                          tensors(2, 3, 12, 12), squares, budgets=FEW),
    "layer norm": Case(LayerNormed, tensors(32, 16), squares, budgets=FEW),
    "pools": Case(Pools, tensors(2, 3, 16, 16), squares, budgets=FEW),
    "shapes": Case(Shapes, tensors(16, 12), squares, budgets=FEW),
    "attention": Case(Attention, tensors(2, 12, 16), squares, budgets=FEW),
    "attention without mask": Case(lambda: Attention(drop=0.0, causal=False), tensors(8, 24, 16), squares, recomputes=False, budgets=FEW),
    "multi head": Case(MultiHead, tensors(2, 12, 16), lambda out: squares(out[0]) + out[1].pow(2).sum(), budgets=FEW),
    "encoder layer": Case(lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1),
                          tensors(2, 10, 16), squares, budgets=FEW),
    "moving average": Case(MovingAverage, tensors(64, 8), squares, budgets=FEW),
    "replaced buffer": Case(ReplacedBuffer, tensors(512, 8), squares, recomputes=False, budgets=FEW),
    "read then changed": Case(ReadThenChanged, tensors(64, 16), squares, recomputes=False, budgets=FEW),
    "returns a dict": Case(Returns, tensors(512, 8), lambda out: squares(out["logits"]) + out["pair"][0].mean(), recomputes=False, budgets=FEW),
    "returns a dataclass": Case(lambda: Returns("dataclass"), tensors(512, 8), lambda out: squares(out.logits), recomputes=False, budgets=FEW),
    "called by name": Case(Called, _called, squares, recomputes=False, budgets=FEW),
    "input with gradient": Case(lambda: mlp(drop=0.2), _with_gradient, squares, budgets=FEW),
    "checkpointed": Case(Checkpointed, tensors(16, 16), squares, budgets=FEW),
    "checkpointed norm": Case(CheckpointedNorm, tensors(64, 8), squares, recomputes=False, budgets=ONE),
    "spectral": Case(Spectral, tensors(16, 16), squares, budgets=FEW),
    "random ops": Case(RandomOps, tensors(16, 16), squares, budgets=FEW),
    "resnet50": Case(ResNet, tensors(4, 3, 96, 96), classes, long=True),
    "densenet121": Case(lambda: DenseNet(drop=0.15), tensors(2, 3, 64, 64), classes, long=True),
    "gpt2 deeper": Case(lambda: gpt2(6, 64, 4, 500, 64), tokens(4, 64, words=500), classes, long=True),
    "bert deeper": Case(lambda: bert(4, 64, 4, 500, 64), tokens(4, 64, words=500), classes, long=True),
    "vit deeper": Case(lambda: vit(6, 64, 4, 64, 8), tensors(4, 3, 64, 64), classes, long=True),
    "unet wider": Case(lambda: UNet(16), tensors(2, 3, 64, 64), pixels, long=True),
}
