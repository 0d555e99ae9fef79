"""`weft start`, `status` and `stop`, as a person types them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import weft

pytestmark = pytest.mark.timeout(90)
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(tmp_path: Path) -> Run:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    environment.pop("WEFT_TOKEN", None)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "weft.cli", *arguments],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_a_cluster_from_the_command_line(cli: Run, tmp_path: Path) -> None:
    started = cli("start", "--head", "--port", "0", "--num-cpus", "1")
    assert started.returncode == 0, started.stderr
    address = started.stdout.split("of the cluster ")[1].split()[0]
    try:
        (token,) = tmp_path.glob("weft/token-*")
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert token.read_text().strip() not in started.stdout
        refused = cli("start", "--address", address, WEFT_TOKEN="wrong")
        assert refused.returncode == 1
        assert "the token is wrong" in refused.stderr
        joined = cli("start", "--address", address, "--num-cpus", "2", "--resources", '{"extra": 3}')
        assert joined.returncode == 0, joined.stderr
        shown = cli("status", "--address", address)
        assert "2 of 2 nodes are alive" in shown.stdout, shown
        assert "of 3 extra" in shown.stdout
        weft.init(address=address)

        @weft.remote(resources={"extra": 1})
        def node_id() -> str:
            return weft.get_runtime_context().get_node_id()

        assert weft.get(node_id.remote(), timeout=20)
        weft.shutdown()
    finally:
        weft.shutdown()
        stopped = cli("stop", "--address", address)
    assert "2 of 2 nodes ended" in stopped.stdout, stopped
    assert not list(tmp_path.glob("weft/token-*"))
    gone = cli("status", "--address", address)
    assert gone.returncode == 1
    assert "no node of the cluster" in gone.stderr


def test_without_a_token_the_way_to_one_is_named(cli: Run) -> None:
    failed = cli("start", "--address", "127.0.0.1:1")
    assert failed.returncode == 1
    assert "WEFT_TOKEN" in failed.stderr
