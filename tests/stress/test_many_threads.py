"""Many threads in one driver, briefly; `make sanitize` runs the same program under ThreadSanitizer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "threads.py"


def test_threads_that_share_a_session_get_their_own_values_until_its_end() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "3", "2"], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
