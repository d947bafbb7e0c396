# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.compile(model, backend="reprise", options={"budget": "50%"})."""

from __future__ import annotations

from dataclasses import fields
from typing import Callable

import torch
import torch._dynamo

from .dynamo import NEVER_PLAINLY, trace_as_eager_runs
from .session import Options, Session

# Who asks for this backend is not to fall back to plain training without a word.
for name, value in NEVER_PLAINLY.items():
    setattr(torch._dynamo.config, name, value)
# … and a plan is for one size, and one number.
torch._dynamo.config.automatic_dynamic_shapes = False
torch._dynamo.config.specialize_int = torch._dynamo.config.specialize_float = True
trace_as_eager_runs()

_NO_OPTIONS: dict = {}
_sessions: list[tuple[dict, Session]] = []  # one for each options dict: the graphs of one torch.compile call


def backend(module: torch.fx.GraphModule, inputs: list, *, options: dict | None = None) -> Callable:
    return _session_for(_NO_OPTIONS if options is None else options).backend(module, inputs)


def _session_for(options: dict) -> Session:
    for known, session in _sessions:
        if known is options:
            return session
    _sessions.append((options, Session(_read(options))))
    return _sessions[-1][1]


def _read(options: dict) -> Options:
    known = {field.name for field in fields(Options)} - {"name", "plan_file"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(f"unknown option '{unknown[0]}' of backend reprise: want one of {', '.join(sorted(known))}")
    return Options(**options)
