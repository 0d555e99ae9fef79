"""What tests of the command line share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def runner(state_folder: Path) -> Run:
    environment = {**os.environ, "XDG_STATE_HOME": str(state_folder), "COLUMNS": "100"}
    for name in ("WEFT_TOKEN", "WEFT_ADDRESS", "RAY_ADDRESS"):
        environment.pop(name, None)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "weft.cli", *arguments],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=280,
        )

    return run


class Head:
    """A cluster of one node that `weft start --head` has started."""

    def __init__(self, state_folder: Path) -> None:
        self.state_folder = state_folder
        self.run = runner(state_folder)
        started = self.run("start", "--head", "--port", "0", "--num-cpus", "1")
        assert started.returncode == 0, started.stderr
        self.address = started.stdout.split("of the cluster ")[1].split()[0]

    def cli(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run(*arguments, WEFT_ADDRESS=self.address, **variables)

    def stop(self) -> None:
        stopped = self.run("stop", "--address", self.address)
        assert stopped.returncode == 0, stopped
