# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile

# Before anything asks for the cache: no test reads what another run measured, or leaves anything behind.
_FOLDER = tempfile.TemporaryDirectory(prefix="reprise-tests-")
os.environ["REPRISE_CACHE"] = _FOLDER.name

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Sums are split by threads: one, so that plain training is the same each time."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
