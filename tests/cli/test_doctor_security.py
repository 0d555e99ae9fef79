"""`weft doctor --security`: what it says of a cluster that runs, and of one that stands badly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Head

from weft.cli import security
from weft.cli.security import Port
from weft.cli.verdicts import FAILURE, OK, WARNING
from weft.machine import strays


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    made = Head(tmp_path)
    yield made
    made.stop()


def test_a_cluster_on_loopback_stands_well_and_an_open_token_file_is_a_failure(head: Head) -> None:
    shown = head.cli("doctor", "--security", "--json")
    rows = [row for row in json.loads(shown.stdout) if head.address in row["finding"] or row["subject"] == "token"]
    assert shown.returncode == 0, shown
    assert {row["subject"] for row in rows} >= {"node", "node port", "token"}
    dashboards = [row for row in json.loads(shown.stdout) if row["subject"] == "dashboard"]
    assert dashboards and all("plain HTTP, asks for its token" in row["finding"] for row in dashboards)
    assert all(row["level"] == OK for row in rows), rows
    (port,) = [row["finding"] for row in rows if row["subject"] == "node port"]
    assert "tells a stranger nothing" in port and "TLS" in port
    (token,) = head.state_folder.glob("weft/token-*")
    token.chmod(0o644)
    shown = head.cli("doctor", "--security")
    assert shown.returncode == 1 and f"chmod 600 {token}" in shown.stdout
    token.chmod(0o600)


NAMES_ITSELF = r"""
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"\xff) \xfe", 0, 0, 0)
print(flush=True)
sys.stdin.read()
"""


def test_a_process_may_name_itself_by_any_bytes() -> None:
    """Anybody's may, and all are looked at."""
    with subprocess.Popen(
        [sys.executable, "-c", NAMES_ITSELF],
        env={**os.environ, strays.VARIABLE: f"{os.getpid()}-0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as named:
        assert named.stdin is not None and named.stdout is not None
        named.stdout.readline()
        assert named.pid in security._family(os.getpid())
        assert strays.find()[named.pid] == "\ufffd) \ufffd"
        assert not security._ports([named.pid])
        named.stdin.close()


@pytest.mark.parametrize(
    ("port", "level"),
    [
        (Port("0.0.0.0", 6379, "node port"), OK),
        (Port("127.0.0.1", 8265, "dashboard"), OK),
        (Port("0.0.0.0", 8265, "dashboard"), WARNING),
        (Port("0.0.0.0", 8000, "port of a task or actor"), WARNING),
        (Port("127.0.0.1", 8000, "port of a task or actor"), OK),
    ],
)
def test_what_other_machines_reach_without_encryption_is_a_warning(port: Port, level: str) -> None:
    assert security.port_verdict(port, b"\x1b[31mHTTP/1.1 401").level == level
    assert "\x1b" not in security.port_verdict(port, b"\x1b[31mHTTP/1.1 401").finding


def test_secrets_in_an_environment_and_names_of_strangers_are_warnings(tmp_path: Path) -> None:
    assert security.environment_verdict({"WEFT_TOKEN": 7}).level == WARNING
    assert security.names_verdict({"@weft-0-x"}).level == WARNING
    (tmp_path / "token-x").touch(mode=0o600)
    (tmp_path / "token-x").write_text("of 32 letters and more: that will do")
    os.chmod(tmp_path, 0o755)
    assert [verdict.level for verdict in security.files(tmp_path)] == [WARNING, OK]
    (tmp_path / "token-x").write_text("guess")
    assert [verdict.level for verdict in security.files(tmp_path)] == [WARNING, OK, WARNING]
    (tmp_path / "token-x").chmod(0o640)
    assert [verdict.level for verdict in security.files(tmp_path)] == [WARNING, FAILURE]
