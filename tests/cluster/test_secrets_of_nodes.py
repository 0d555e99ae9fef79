"""Secrets in a node's environment: no task finds them there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft
from weft.cluster_utils import Cluster
from weft.machine.secrets import NAMES

SECRET = "hunter2"


@weft.remote
def found_secrets() -> list[str]:
    """In this process's memory of variables, and in what the kernel shows of it and of those above it."""
    from weft.machine import secrets

    found = [f"os.environ: {name}" for name, value in os.environ.items() if SECRET in value]
    found += [f"{name} is known" for name in NAMES if secrets.given(name)]
    pid = os.getpid()
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        name = status.split("Name:\t")[1].split("\n")[0]
        if name.startswith("weft") and SECRET.encode() in Path(f"/proc/{pid}/environ").read_bytes():
            found.append(f"/proc/{pid}/environ of {name}")
        pid = int(status.split("PPid:\t")[1].split("\n")[0])
    return found


def test_a_task_finds_no_secret_that_its_node_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, SECRET)
    cluster = Cluster(initialize_head=True)
    for name in NAMES:
        monkeypatch.delenv(name)
    weft.init(address=cluster.address)
    try:
        assert weft.get(found_secrets.remote(), timeout=30) == []
        url = weft.init(ignore_reinit_error=True).dashboard_url
        assert url is not None and SECRET in url  # the daemon has it still
    finally:
        weft.shutdown()
        cluster.shutdown()
