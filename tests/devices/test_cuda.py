"""The suite of CUDA's, in a process of its own; skipped where there is no GPU, and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft.devices import cuda


def test_tensors_on_a_cuda_device() -> None:
    if not cuda.driver().devices():
        pytest.skip("there is no CUDA device here")
    suite = Path(__file__).with_name("cuda_suite.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:]
    assert " passed" in done.stdout
