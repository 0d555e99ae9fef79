"""Many threads in one driver, and many cancels, briefly; `make sanitize` runs the threads under ThreadSanitizer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("seed", [0, 1])
def test_of_calls_that_are_cancelled_at_random_moments_none_is_lost(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "cancels.py"), "10", str(seed)],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_threads_that_share_a_session_get_their_own_values_until_its_end() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "threads.py"), "4", "12"],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
