"""Programs that tests run as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run(program: str, *, stdin: bool = False, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(program)
    command = [sys.executable, "-"] if stdin else [sys.executable, "-c", text]
    return subprocess.run(
        command,
        input=text if stdin else None,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, **(env or {})},
        check=False,
    )
