"""The generated parts of the pages of weft.rl's algorithms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "rl" / "pages.py"


def test_pages_of_algorithms_have_todays_settings_and_curves() -> None:
    # A process of its own: the settings of algorithms bring JAX along, and tests that fork come after this one.
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
