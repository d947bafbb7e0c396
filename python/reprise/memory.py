# SPDX-License-Identifier: Apache-2.0
"""What a device holds, as its allocator counts it.

On CUDA these are PyTorch's own statistics; measuring restarts their peak. On the CPU an allocator that counts takes
the place of PyTorch's when `reprise` is imported; what was allocated before, what numpy owns, and what oneDNN or MKL
take for themselves is not seen.
"""

from __future__ import annotations

from typing import Iterable

import torch

from . import _torch

_torch.install_memory_probe()


class measure:
    """Measures the peak of what runs inside.

    >>> with reprise.memory.measure() as memory:
    ...     loss = model(x).sum(); loss.backward()
    >>> memory.peak, memory.start, memory.extra
    """

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._meter: _torch.PeakMeter | None = None
        self._peak = 0
        self.start = 0  # bytes in use when it began

    def __enter__(self) -> "measure":
        self._meter = _torch.PeakMeter(self.device)
        self.start = in_use(self.device)
        return self

    def __exit__(self, *_) -> None:
        self._peak, self._meter = self.peak, None

    @property
    def peak(self) -> int:
        """The most bytes in use at a time, what was there at the start included."""
        return self._peak if self._meter is None else self._meter.peak

    @property
    def extra(self) -> int:
        """The peak over what was there at the start."""
        return self.peak - self.start


def in_use(device: torch.device | str = "cpu") -> int:
    """Bytes in use now."""
    device = torch.device(device)
    return _torch.bytes_in_use() if device.type == "cpu" else torch.cuda.memory_allocated(device)


def reserved(device: torch.device | str) -> int:
    """Bytes that PyTorch's allocator holds on the device, in use or not; 0 where it holds none, as on the CPU."""
    device = torch.device(device)
    return 0 if device.type == "cpu" else torch.cuda.memory_reserved(device)


def uncounted(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of CPU storages among `tensors` that the counting allocator did not see being made."""
    storages = {t.untyped_storage().data_ptr(): t for t in tensors if t.device.type == "cpu"}
    return sum(t.untyped_storage().nbytes() for t in storages.values() if not _torch.is_counted(t))


def free(device: torch.device | str) -> int:
    """Bytes that the device has left, as far as can be told."""
    device = torch.device(device)
    if device.type == "cpu":
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError("/proc/meminfo does not say what memory is available")
    free_bytes, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    of_graphs = sum(segment["total_size"] - segment["allocated_size"] for segment in torch.cuda.memory_snapshot()
                    if segment["device"] == index and tuple(segment["segment_pool_id"]) != (0, 0))
    return free_bytes + held - of_graphs
