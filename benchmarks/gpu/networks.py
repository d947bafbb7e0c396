# SPDX-License-Identifier: Apache-2.0
"""The networks that are measured: how to build one, what to feed it, what its blocks are, and OGC's figures for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn

from .cells import AMOEBANET, DARTS, NASNET, CellNetwork

Inputs = Callable[[int], tuple[torch.Tensor, ...]]  # of a batch, on the default device


@dataclass(frozen=True)
class Ogc:
    """Feng & Huang, Optimal Gradient Checkpoint Search, CVPR 2021: their code on an H200 with torch 2.11. Memory is
    intermediate, in MiB; time is by CUDA events, in ms."""

    mib: float
    eager_ms: float
    ms: float


@dataclass(frozen=True)
class Network:
    build: Callable[[], nn.Module]  # its outputs are summed up to the loss
    batch: int
    inputs: Inputs
    blocks: Callable[[nn.Module], list[nn.Module]]  # what torch.utils.checkpoint goes around
    shape: str  # of a sample, in words
    ogc: Ogc | None = None
    published_mib: tuple[int, ...] = ()  # intermediate memory that others are known to take


def _library(name: str):
    try:
        return import_module(name)
    except ImportError:
        raise RuntimeError(f"this network is {name.partition('.')[0]}'s: pip install it") from None


def _images(size: int) -> Inputs:
    return lambda batch: (torch.randn(batch, 3, size, size),)


def _tokens(length: int, words: int) -> Inputs:
    """Tokens and what they are to become."""
    return lambda batch: tuple(torch.randint(words, (batch, length)) for _ in range(2))


def _of_class(*names: str) -> Callable[[nn.Module], list[nn.Module]]:
    return lambda model: [module for module in model.modules() if type(module).__name__ in names]


def _between_pools(model: nn.Module) -> list[nn.Module]:
    """Of a network whose features are one chain: the segments that end with a pooling, put in the chain's place."""
    segments: list[list[nn.Module]] = [[]]
    for layer in model.features:
        segments[-1].append(layer)
        if isinstance(layer, nn.MaxPool2d):
            segments.append([])
    model.features = nn.Sequential(*(nn.Sequential(*segment) for segment in segments if segment))
    return list(model.features)


def _torchvision(name: str, **options) -> Callable[[], nn.Module]:
    """Without dropout, as OGC measures."""
    def build() -> nn.Module:
        model = getattr(_library("torchvision.models"), name)(**options)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return model
    return build


class LanguageModel(nn.Module):
    """A Hugging Face model with its loss."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets):
        return F.cross_entropy(self.model(input_ids=tokens).logits.flatten(0, 1), targets.flatten())


def _transformers(model: str, config: str, dtype: torch.dtype = torch.float32, **options) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        library = _library("transformers")
        return LanguageModel(getattr(library, model)(getattr(library, config)(use_cache=False, **options))).to(dtype)
    return build


def _two_convolutions(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
                         nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Ronneberger et al., MICCAI 2015, with padding and batch norm: 64 to 1024 channels in five steps."""

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 2):
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList(_two_convolutions(a, b) for a, b in zip([3, *widths], widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(_two_convolutions(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skipped = []
        for down in self.down[:-1]:
            skipped.append(down(x))
            x = F.max_pool2d(skipped[-1], 2)
        x = self.down[-1](x)
        for grow, up in zip(self.grow, self.up):
            x = up(torch.cat([skipped.pop(), grow(x)], 1))
        return self.head(x)


def _vision(name: str, batch: int, blocks, ogc: Ogc | None = None, size: int = 224, **options) -> Network:
    return Network(_torchvision(name, **options), batch, _images(size), blocks, f"3 × {size}²", ogc)


def _cells(genotype, ogc: Ogc) -> Network:
    return Network(lambda: CellNetwork(genotype), 64, _images(32), _of_class("Cell"), "3 × 32²", ogc)


_RESIDUAL = _of_class("BasicBlock", "Bottleneck")
_DENSE = _of_class("_DenseLayer")
_MIXED = _of_class("InceptionA", "InceptionB", "InceptionC", "InceptionD", "InceptionE")
_MOBILE = _of_class("InvertedResidual")
_UNET = _of_class("Sequential")

NETWORKS = {
    "alexnet": _vision("alexnet", 1024, _between_pools, Ogc(3851, 61.4, 82.0)),
    "vgg11": _vision("vgg11", 64, _between_pools, Ogc(2781, 27.6, 35.8)),
    "vgg13": _vision("vgg13", 64, _between_pools, Ogc(4351, 41.2, 53.8)),
    "vgg16": _vision("vgg16", 64, _between_pools, Ogc(4351, 48.4, 63.1)),
    "vgg19": _vision("vgg19", 64, _between_pools, Ogc(4351, 55.7, 72.4)),
    "resnet18": _vision("resnet18", 256, _RESIDUAL, Ogc(3675, 51.5, 66.3)),
    "resnet34": _vision("resnet34", 128, _RESIDUAL, Ogc(1838, 40.4, 52.0)),
    "resnet50": _vision("resnet50", 64, _RESIDUAL, Ogc(1972, 33.5, 44.0)),
    "resnet101": _vision("resnet101", 32, _RESIDUAL, Ogc(1023, 45.4, 68.2)),
    "resnet152": _vision("resnet152", 16, _RESIDUAL, Ogc(512, 54.6, 85.8)),
    "densenet121": _vision("densenet121", 32, _DENSE, Ogc(822, 50.6, 85.3)),
    "densenet161": _vision("densenet161", 16, _DENSE, Ogc(650, 70.0, 124.0)),
    "densenet169": _vision("densenet169", 32, _DENSE, Ogc(858, 75.4, 114.7)),
    "densenet201": _vision("densenet201", 16, _DENSE, Ogc(499, 81.5, 127.5)),
    "inception_v3": _vision("inception_v3", 32, _MIXED, Ogc(876, 37.9, 53.6), 300, aux_logits=False,
                            transform_input=False, init_weights=False),
    "nasnet_cifar10": _cells(NASNET, Ogc(1084, 107.0, 253.2)),
    "amoebanet_cifar10": _cells(AMOEBANET, Ogc(1011, 61.2, 211.1)),
    "darts_cifar10": _cells(DARTS, Ogc(1108, 76.0, 250.0)),
    # What torch.utils.checkpoint around each block, and torch.compile, took on an H200 with torch 2.11.
    "gpt2": Network(_transformers("GPT2LMHeadModel", "GPT2Config", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0), 8,
                    _tokens(1024, 50257), _of_class("GPT2Block"), "1024 tokens", published_mib=(5048, 7838)),
    "bert": Network(_transformers("BertForMaskedLM", "BertConfig"), 16, _tokens(512, 30522), _of_class("BertLayer"),
                    "512 tokens"),
    "vit_b_16": _vision("vit_b_16", 64, _of_class("EncoderBlock")),
    "llama_1b": Network(
        _transformers("LlamaForCausalLM", "LlamaConfig", torch.bfloat16, vocab_size=32000, hidden_size=2048,
                      intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                      max_position_embeddings=2048), 4, _tokens(2048, 32000), _of_class("LlamaDecoderLayer"),
        "2048 tokens, bf16"),
}

# How many train inside 16 GB: the batch is where looking begins.
MAX_BATCH = {
    "resnet50": NETWORKS["resnet50"],
    "vgg19": NETWORKS["vgg19"],
    "mobilenet_v2": _vision("mobilenet_v2", 64, _MOBILE),
    "unet": Network(UNet, 8, _images(256), _UNET, "3 × 256²"),
}

# For a run on a CPU, to see that all of it works; the figures of OGC are made up.
TINY = {
    "unet": Network(lambda: UNet(8, 2), 2, _images(32), _UNET, "3 × 32²", Ogc(1.0, 5.0, 6.0)),
    "gpt2": Network(_transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=500, n_embd=64, n_layer=2, n_head=2,
                                  n_positions=64, bos_token_id=0, eos_token_id=0),
                    4, _tokens(64, 500), _of_class("GPT2Block"), "64 tokens"),
}
TINY_MAX_BATCH = {"unet": TINY["unet"]}


def in_channels_last(network: Network) -> Network:
    """Its weights and images lie so: cuDNN's convolutions then turn nothing around."""
    def laid(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.contiguous(memory_format=torch.channels_last) for tensor in tensors)

    return replace(network, build=lambda: network.build().to(memory_format=torch.channels_last),
                   inputs=lambda batch: laid(network.inputs(batch)))


def networks_of(tiny: bool) -> dict[str, Network]:
    return TINY | TINY_MAX_BATCH if tiny else NETWORKS | MAX_BATCH
