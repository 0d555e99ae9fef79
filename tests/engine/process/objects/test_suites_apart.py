"""Suites that run in processes of their own: who imports JAX has threads for good, and later tests could not fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("suite", sorted(path.name for path in HERE.glob("*_suite.py")))
def test_a_suite_passes_in_a_process_of_its_own(suite: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / suite)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:]
    assert " passed" in done.stdout
