# SPDX-License-Identifier: Apache-2.0
"""Small networks with parameters, buffers, inputs or outputs out of the ordinary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def mlp(width: int = 32, depth: int = 3, drop: float = 0.1) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(width if i else 8, width), nn.Tanh(), nn.Dropout(drop)]
    return nn.Sequential(*layers, nn.Linear(width, 4))


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


class CheckpointedNorm(nn.Module):
    """A region that changes buffers, as each of its runs does in eager."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)


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
