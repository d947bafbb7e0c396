# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import os
import sys
import tempfile

import pytest

# Before anything asks for the cache: no test reads what another run measured, or leaves anything behind.
_FOLDER = tempfile.TemporaryDirectory(prefix="reprise-tests-")
os.environ["REPRISE_CACHE"] = _FOLDER.name
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of processes that tests start
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic, and read once


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Sums are split by threads: one, so that plain training is the same each time."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    import torch

    torch._dynamo.reset()


@pytest.fixture
def deterministic():
    import torch

    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def fresh_cache(monkeypatch, tmp_path):
    """One in which nothing was measured, and nothing stays that was."""
    from reprise import cache

    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_open_caches", {})


_frozen = 0


@pytest.fixture(autouse=True)
def frozen_modules():
    """Millions of objects that modules are made of need not be searched for garbage again and again."""
    global _frozen
    if len(sys.modules) > _frozen + 50:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)
