# SPDX-License-Identifier: Apache-2.0
"""What there is to measure of a network, and with what options."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .networks import MAX_BATCH, NETWORKS, TINY, TINY_MAX_BATCH

SHARES = [tenth / 10 for tenth in range(10, 0, -1)]  # of the sweep
SWEPT = {False: "resnet50", True: "unet"}  # by whether the run is tiny
MOST = 2  # times the limit: what is tried may take
METHODS = ("eager", "checkpoint", "compile", "reprise", "channels-last", "sweep", "max-batch")

Job = tuple[str, str]  # a method and its budget; of channels-last and max-batch: whose
PLAIN: Job = ("eager", "")


@dataclass(frozen=True)
class Options:
    results: str  # JSON lines
    device: str
    tiny: bool
    steps: int  # that are timed
    executor: str | None  # of Reprise; None: its default
    plan_seconds: float
    limit: int  # bytes that the largest batch trains in
    timeout: int  # seconds for one line

    @property
    def on_cuda(self) -> bool:
        return self.device.startswith("cuda")

    def settings(self) -> dict:
        """What a line was measured with: others' are not taken for it."""
        name = torch.cuda.get_device_name(self.device) if self.on_cuda else self.device
        return {"device": name, "torch": torch.__version__, "tiny": self.tiny, "steps": self.steps,
                "executor": self.executor, "plan_seconds": self.plan_seconds, "limit": self.limit}


def jobs_of(name: str, methods: list[str], tiny: bool) -> list[Job]:
    """What there is to measure of a network, in order. Eager in any case: the others' times are told over its."""
    networks, batched = (TINY, TINY_MAX_BATCH) if tiny else (NETWORKS, MAX_BATCH)
    jobs: list[Job] = []
    if name in networks:
        shares = SHARES if "sweep" in methods and name == SWEPT[tiny] else []
        if "checkpoint" in methods:
            jobs += [("checkpoint", "")]
        if "compile" in methods:
            jobs += [("compile", "1.0"), ("compile", "0.5")]
        jobs += [("compile", str(share)) for share in shares]
        if "reprise" in methods:
            jobs += [("reprise", "100%")]
            jobs += [("reprise", "ogc")] if networks[name].ogc else []
            jobs += [("reprise", f"{mib} MiB") for mib in networks[name].published_mib]
            jobs += [("reprise", "50%"), ("reprise", "min")]
        jobs += [("reprise", f"{share:.0%}") for share in shares]
        if "channels-last" in methods and networks[name].ogc:
            jobs += [("channels-last", "eager"), ("channels-last", "ogc")]
        jobs = [PLAIN, *jobs] if jobs or "eager" in methods else []
    if name in batched and "max-batch" in methods:
        jobs += [("max-batch", "eager"), ("max-batch", "reprise")]
    return list(dict.fromkeys(jobs))


def boot() -> str:
    """Tells this machine, since it was started, from others."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
