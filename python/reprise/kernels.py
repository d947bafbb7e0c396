# SPDX-License-Identifier: Apache-2.0
"""Which kernels PyTorch has, and by which settings it chooses among them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterable, Iterator, NamedTuple

import torch

from .capture.tracer import Call


class KernelSettings(NamedTuple):
    """Those by which PyTorch chooses among kernels."""

    cudnn: bool
    benchmark: bool
    deterministic: bool
    precision: tuple[str, ...]  # of what is called float32: by default, in convolutions, recurrent layers, products
    reduction: tuple[bool, ...]  # of 16 bits: whether less precise sums of products are allowed
    attention: tuple[bool, ...]  # which kernels may be taken …
    attention_order: tuple[int, ...]  # … and which of them first


def kernel_settings() -> KernelSettings:
    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    products = cuda.matmul
    return KernelSettings(cudnn.enabled, cudnn.benchmark,
                          cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
                          (torch.backends.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision,
                           products.fp32_precision),
                          (products.allow_fp16_reduced_precision_reduction,
                           products.allow_bf16_reduced_precision_reduction, products.allow_fp16_accumulation),
                          (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(),
                           cuda.cudnn_sdp_enabled()), tuple(torch._C._get_sdp_priority_order()))


# Operations that take cuBLAS' workspace, which stays: for each thread that calls it, and each stream.
_PRODUCTS = {f"aten::{name}" for name in ("mm", "addmm", "_addmm_activation", "bmm", "baddbmm", "addbmm", "mv", "addmv",
                                          "dot", "vdot")}


def multiplies(calls: Iterable[Call]) -> bool:
    return any(call.name in _PRODUCTS for call in calls)


def set_up_cublas(device: torch.device) -> None:
    """Has its workspaces allocated, this thread's and that of the one which runs backward on the device: else a first
    step would allocate them, and what multiplies there would seem to take them each time."""
    one = torch.ones(1, 1, device=device, requires_grad=True)
    with torch.enable_grad():
        torch.autograd.backward(one @ one)


def has_kernel(op: str, device: torch.device) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op, torch._C._dispatch_key_for_device(device.type))


@contextmanager
def captured_under(settings: KernelSettings) -> Iterator[None]:
    """Which operations are traced is decided as by `settings`."""
    before = kernel_settings()
    _set(settings)
    try:
        yield
    finally:
        _set(before)


def _set(settings: KernelSettings) -> None:
    """Sets what decides which operations are traced: cuDNN, and attention's kernels. The other settings choose among
    kernels of one operation."""
    cuda = torch.backends.cuda
    torch._C._set_cudnn_enabled(settings.cudnn)
    for enable, is_enabled in zip((cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_math_sdp,
                                   cuda.enable_cudnn_sdp), settings.attention):
        enable(is_enabled)
    torch._C._set_sdp_priority_order(list(settings.attention_order))
