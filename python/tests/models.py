# SPDX-License-Identifier: Apache-2.0
"""Small networks, each with something that is easily got wrong below autograd."""

from __future__ import annotations

from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn


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
