# SPDX-License-Identifier: Apache-2.0
"""Small networks, each with something that is easily got wrong below autograd, and what to train them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


# Convolutional networks.
class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        out = 4 * width
        self.reduce = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width))
        self.mix = nn.Sequential(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width))
        self.expand = nn.Sequential(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        same = stride == 1 and channels == out
        self.shortcut = None if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                                        nn.BatchNorm2d(out))

    def forward(self, x):
        out = F.relu(self.reduce(x), inplace=True)
        out = F.relu(self.mix(out), inplace=True)
        out = self.expand(out)
        out += x if self.shortcut is None else self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    """ResNet-50 as it stands."""

    def __init__(self, depths=(3, 4, 6, 3), width: int = 64, classes: int = 1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks, channels = [], width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(Bottleneck(channels, width << stage, 2 if stage and i == 0 else 1))
                channels = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int, drop: float):
        super().__init__()
        self.squeeze = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
                                     nn.Conv2d(channels, 4 * growth, 1, bias=False))
        self.grow = nn.Sequential(nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True),
                                  nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))
        self.drop = drop

    def forward(self, features):
        out = self.grow(self.squeeze(torch.cat(features, 1)))
        return F.dropout(out, self.drop, self.training) if self.drop else out


class DenseNet(nn.Module):
    """DenseNet-121 as it stands."""

    def __init__(self, depths=(6, 12, 24, 16), growth: int = 32, stem: int = 64, classes: int = 1000, drop: float = 0.0):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        channels = stem
        for stage, depth in enumerate(depths):
            self.blocks.append(nn.ModuleList(DenseLayer(channels + i * growth, growth, drop) for i in range(depth)))
            channels += depth * growth
            if stage + 1 < len(depths):
                self.transitions.append(nn.Sequential(
                    nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.Conv2d(channels, channels // 2, 1, bias=False),
                    nn.AvgPool2d(2)))
                channels //= 2
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stem(x)
        for stage, block in enumerate(self.blocks):
            features = [x]
            for layer in block:
                features.append(layer(features))
            x = torch.cat(features, 1)
            if stage < len(self.transitions):
                x = self.transitions[stage](x)
        x = F.relu(self.norm(x), inplace=True)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class MobileNet(nn.Module):
    """Depthwise and pointwise convolutions, activations in place."""

    def __init__(self, widths=(16, 24, 24, 32), classes: int = 10):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(inplace=True)]
        channels = 8
        for width in widths:
            layers += [nn.Conv2d(channels, channels, 3, 2 if width != channels else 1, 1, groups=channels, bias=False),
                       nn.BatchNorm2d(channels), nn.ReLU6(inplace=True),
                       nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.Hardswish(inplace=True)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(channels, classes))

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def _double_convolution(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
                         nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, width: int = 8, classes: int = 2, align: bool = True):
        super().__init__()
        self.down = nn.ModuleList([_double_convolution(3, width), _double_convolution(width, 2 * width),
                                   _double_convolution(2 * width, 4 * width)])
        self.up = nn.ModuleList([_double_convolution(6 * width, 2 * width), _double_convolution(3 * width, width)])
        self.grow = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=align)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        fine = self.down[0](x)
        middle = self.down[1](F.max_pool2d(fine, 2))
        coarse = self.down[2](F.max_pool2d(middle, 2))
        x = self.up[0](torch.cat([self.grow(coarse), middle], 1))
        return self.head(self.up[1](torch.cat([self.grow(x), fine], 1)))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int = 8):
        super().__init__()
        self.before = nn.Conv2d(3, channels, 3, padding=1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 2, 1), nn.SiLU(inplace=True),
                                  nn.Conv2d(2, channels, 1), nn.Hardsigmoid(inplace=True))
        self.after = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        x = F.silu(self.before(x))
        return self.after(x * self.gate(x)).mul_(0.5)


class FrozenBatchNorm(nn.Module):
    """One batch norm of two is in eval mode while the model trains."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        for parameter in self.first[1].parameters():
            parameter.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True):
        super().train(mode)
        self.first[1].eval()
        return self

    def forward(self, x):
        return F.relu_(self.second(F.relu_(self.first(x))))


def normalised(kind: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), kind(8), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1), kind(8),
                         nn.ELU(inplace=True), nn.Conv2d(8, 4, 1))


class LayerNormed(nn.Module):
    def __init__(self, width: int = 16, depth: int = 3):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                                    for _ in range(depth))

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return x


# Sequences.
class Recurrent(nn.Module):
    def __init__(self, kind: type, width: int = 12, layers: int = 2, drop: float = 0.2, bidirectional: bool = False):
        super().__init__()
        self.before = nn.Linear(8, width)
        self.cells = kind(width, width, layers, batch_first=True, dropout=drop, bidirectional=bidirectional)
        self.head = nn.Sequential(nn.Linear(width * (2 if bidirectional else 1), 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x):
        states, _ = self.cells(torch.tanh(self.before(x)))
        return self.head(states)


class TiedWords(nn.Module):
    """One weight embeds and projects."""

    def __init__(self, words: int = 40, width: int = 16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width))
        self.project = nn.Linear(width, words, bias=False)
        self.project.weight = self.embed.weight

    def forward(self, tokens):
        return self.project(self.body(self.embed(tokens)))


class PaddedWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        self.bag = nn.EmbeddingBag(20, 8, mode="mean")
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, tokens):
        return self.head(torch.cat([self.embed(tokens).sum(1), self.bag(tokens)], 1))


class Attention(nn.Module):
    """scaled_dot_product_attention, causal and with dropout."""

    def __init__(self, width: int = 16, heads: int = 2, drop: float = 0.1, causal: bool = True):
        super().__init__()
        self.heads, self.drop, self.causal = heads, drop, causal
        self.join = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = self.join(x).chunk(3, dim=-1)
        split = [t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (query, key, value)]
        drop = self.drop if self.training else 0.0
        mixed = F.scaled_dot_product_attention(*split, dropout_p=drop, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class MultiHead(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        mixed, weights = self.attend(x, x, x, need_weights=True)
        return self.norm(x + mixed), weights


class Logits(nn.Module):
    """A Hugging Face model, called by name."""

    def __init__(self, model: nn.Module, argument: str = "input_ids"):
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x):
        return self.model(**{self.argument: x}).logits


def gpt2(layers: int = 2, width: int = 16, heads: int = 2, words: int = 50, length: int = 16,
         cache: bool = True) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return Logits(GPT2LMHeadModel(GPT2Config(vocab_size=words, n_embd=width, n_layer=layers, n_head=heads,
                                             n_positions=length, use_cache=cache)))


def bert(layers: int = 2, width: int = 16, heads: int = 2, words: int = 50, length: int = 16) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return Logits(BertForMaskedLM(BertConfig(vocab_size=words, hidden_size=width, num_hidden_layers=layers,
                                             num_attention_heads=heads, intermediate_size=4 * width,
                                             max_position_embeddings=length)))


def vit(layers: int = 2, width: int = 16, heads: int = 2, image: int = 16, patch: int = 4) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return Logits(ViTForImageClassification(ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=image, patch_size=patch, hidden_dropout_prob=0.1, num_labels=5)), "pixel_values")


class Normalized(nn.Module):
    """Little else than batch norms."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
                                      for _ in range(6)])

    def forward(self, x):
        return self.layers(x).square().mean()


# Parameters and outputs out of the ordinary.
def mlp(width: int = 32, depth: int = 3, drop: float = 0.1, inputs: int = 8, outputs: int = 4) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(width if i else inputs, width), nn.Tanh(), nn.Dropout(drop)]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, x.exp())
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, _ = ctx.saved_tensors
        return gradient * 2 * x * ctx.scale * 1.5, None  # not the true gradient: autograd's would differ


class OwnFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(_Square.apply(torch.tanh(self.first(x)), 0.5))


class TwoHeads(nn.Module):
    """The second head's output is handed out and may stay unused."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.Tanh())
        self.first, self.second = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x):
        x = self.body(x)
        return self.first(x), self.second(x).relu()


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.below, self.frozen, self.above = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.above(torch.tanh(self.frozen(torch.tanh(self.below(x)))))


class FrozenBelow(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Sequential(nn.Linear(8, 16), nn.Tanh()).requires_grad_(False)
        self.above = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x):
        with torch.no_grad():
            x = self.frozen(x)
        return self.above(x)


class InPlace(nn.Module):
    """Changes whole tensors and views of them; some values are read before and after."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu_(self.first(x))
        y = self.second(x)
        y.add_(x)
        y[:, :8].mul_(0.5)  # a view of what was just changed
        z = y.sin()
        z[:, 8:] += y[:, :8]
        z = z * 2
        z.masked_fill_(x > 1.0, 0.25)
        z.index_put_((torch.arange(2), torch.tensor([0, 3])), torch.ones(2), accumulate=True)
        z.clamp_(-1.0, 1.5)
        return self.third(z)


class InPlaceKept(nn.Module):
    """A value that backward needs as it was, changed after a clone; a running sum through views."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        total = torch.zeros(x.shape[0], 24)
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            total[:, 8 * i:8 * i + 8] += x
            total.mul_(0.9)
        return total.sigmoid_()


class Shapes(nn.Module):
    """einsum, where, cat, split, chunk, unbind, stack, pad, gather, cumsum, flips."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(12, 12), nn.Linear(12, 12)
        self.scale = nn.Parameter(torch.rand(3, 4))

    def forward(self, x):
        a = self.left(x).view(-1, 3, 4)
        b = self.right(x).view(-1, 3, 4)
        mixed = torch.einsum("bij,ij,bkj->bik", a, self.scale, b)
        mixed = torch.where(mixed > 0, mixed, 0.1 * mixed)
        first, second, third = mixed.unbind(1)
        head, tail = torch.cat([first, second, third], 1).split([4, 5], 1)
        left, right = tail[:, :4].chunk(2, 1)
        stacked = torch.stack([head, torch.cat([right, left], 1)], 1)
        padded = F.pad(stacked, (1, 1), value=0.5).flip(-1)
        gathered = padded.gather(2, torch.zeros(padded.shape[0], 2, 3, dtype=torch.long))
        return torch.cat([padded.cumsum(-1).permute(0, 2, 1).flatten(1), gathered.flatten(1)], 1).softmax(-1)


class MovingAverage(nn.Module):
    """Updates buffers of its own in forward: one that it then reads, and one that counts."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        x = torch.tanh(self.first(x))
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
            self.seen += 1
        return self.second(torch.tanh(x - self.mean))


class ReplacedBuffer(nn.Module):
    """Assigns its buffer instead of changing it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x):
        x = torch.tanh(self.first(x))
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.second(x - self.mean)


class ReadThenChanged(nn.Module):
    """Reads a buffer, then changes it: what read it can't be run again as it was."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("shift", torch.full((16,), 0.5))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x) + self.shift)
            self.shift.mul_(0.9)
        return x


@dataclass
class Scores:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class Returns(nn.Module):
    """Returns a dict with tuples, None, a number and a tensor without gradient, or a dataclass."""

    def __init__(self, kind: str = "dict"):
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        out = self.second(hidden)
        if self.kind == "dataclass":
            return Scores(out, hidden)
        return {"logits": out, "pair": (hidden, None), "best": out.argmax(1), "count": 3, "same": out}


class Called(nn.Module):
    """Takes numbers, flags, None and keyword arguments."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, scale: float, mask=None, *, double: bool = False, names=("a",)):
        x = torch.tanh(self.first(x)) * scale
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        if double:
            x = x + x
        return self.second(x) * len(names)


class Checkpointed(nn.Module):
    """Regions under torch's own checkpointing, with dropout in them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))
                                    for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


class Spectral(nn.Module):
    """Complex numbers by way of FFT, a complex parameter among them."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.before = nn.Linear(width, width)
        self.filter = nn.Parameter(torch.randn(width // 2 + 1, dtype=torch.complex64))
        self.after = nn.Linear(width, 4)

    def forward(self, x):
        spectrum = torch.fft.rfft(torch.tanh(self.before(x))) * self.filter
        back = torch.fft.irfft(spectrum * spectrum.conj().abs(), n=x.shape[-1])
        return self.after(back + spectrum.angle().sum(-1, keepdim=True) + spectrum.imag.sum(-1, keepdim=True))


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 8, 3, 2, 1))
        self.up = nn.Sequential(nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.PReLU(8), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x):
        return torch.tanh(self.up(F.leaky_relu_(self.down(x), 0.2)))


class Pools(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1)], 1)
        x = F.adaptive_max_pool2d(self.second(x).relu(), 4)
        return F.interpolate(F.lp_pool2d(x, 2, 2), scale_factor=2, mode="nearest")


class RandomOps(nn.Module):
    """Randomness of many kinds, in its order."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        x = torch.tanh(self.layers[0](x)) + 0.1 * torch.randn_like(x)
        x = torch.tanh(self.layers[1](x)) * torch.bernoulli(torch.full_like(x, 0.7))
        x = F.rrelu(self.layers[2](x), training=True)
        x = F.alpha_dropout(torch.tanh(self.layers[3](x)), 0.2, True)
        return x[:, torch.randperm(16)] + torch.rand(16) + torch.empty(16).uniform_(0, 0.1)


# What to train them on.
Given = tuple[tuple, dict]
FEW, EVERY = ("70%", "min"), ("80%", "60%", "40%", "min")  # budgets


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
    "densenet": Case(lambda: DenseNet((2, 2), 4, 8, 10, drop=0.15), tensors(2, 3, 32, 32), classes),
    "mobilenet": Case(MobileNet, tensors(2, 3, 32, 32), classes, budgets=FEW),
    "unet": Case(UNet, tensors(2, 3, 16, 16), pixels, budgets=FEW),
    "unet align false": Case(lambda: UNet(4, align=False), tensors(1, 3, 16, 16), pixels, budgets=FEW),
    "lstm": Case(lambda: Recurrent(nn.LSTM), tensors(4, 7, 8), squares),
    "lstm bidirectional": Case(lambda: Recurrent(nn.LSTM, bidirectional=True), tensors(4, 7, 8), squares, budgets=FEW),
    "gru": Case(lambda: Recurrent(nn.GRU), tensors(4, 5, 8), squares, budgets=FEW),
    "rnn": Case(lambda: Recurrent(nn.RNN), tensors(4, 5, 8), squares, budgets=FEW),
    "gpt2": Case(gpt2, tokens(2, 16), classes, budgets=FEW),
    "gpt2 without cache": Case(lambda: gpt2(cache=False), tokens(2, 16), classes, budgets=FEW),
    "bert": Case(bert, tokens(2, 16), classes, budgets=FEW),
    "vit": Case(vit, tensors(2, 3, 16, 16), classes, budgets=FEW),
    "mlp": Case(lambda: mlp(drop=0.1), tensors(64, 8), squares, budgets=FEW),
    "mlp drop 0.15": Case(lambda: mlp(drop=0.15), tensors(64, 8), squares),
    "mlp drop 0.45": Case(lambda: mlp(drop=0.45), tensors(64, 8), squares),
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
    "spectral": Case(Spectral, tensors(16, 16), squares, budgets=FEW),
    "random ops": Case(RandomOps, tensors(16, 16), squares, budgets=FEW),
    "resnet50": Case(ResNet, tensors(4, 3, 96, 96), classes, long=True),
    "densenet121": Case(lambda: DenseNet(drop=0.15), tensors(2, 3, 64, 64), classes, long=True),
    "gpt2 deeper": Case(lambda: gpt2(6, 64, 4, 500, 64), tokens(4, 64, words=500), classes, long=True),
    "bert deeper": Case(lambda: bert(4, 64, 4, 500, 64), tokens(4, 64, words=500), classes, long=True),
    "vit deeper": Case(lambda: vit(6, 64, 4, 64, 8), tensors(4, 3, 64, 64), classes, long=True),
    "unet wider": Case(lambda: UNet(16), tensors(2, 3, 64, 64), pixels, long=True),
}
