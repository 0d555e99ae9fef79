"""A node daemon whose log takes nothing any more: what it says is dropped, and it goes on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from clusters import THERE, TwoNodes

import weft
from waiting import children_named, wait_until


@pytest.fixture
def nodes() -> Iterator[TwoNodes]:
    made = TwoNodes()
    try:
        yield made
    finally:
        weft.shutdown()
        made.cluster.shutdown()


def servers(pid: int) -> list[psutil.Process]:
    return children_named(pid, "weft-control")


def test_a_daemon_whose_log_cannot_be_written_goes_on(nodes: TwoNodes) -> None:
    """It has something to say when its server of the control store dies; the next one inherits the limit."""
    pid = nodes.other.pid
    wait_until(lambda: servers(pid))
    (server,) = servers(pid)
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    server.kill()
    wait_until(lambda: not nodes.other.is_alive() or any(one.pid != server.pid for one in servers(pid)))
    assert nodes.other.is_alive()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    @weft.remote(**THERE)
    def says() -> str:
        return "there"

    assert weft.get(says.remote(), timeout=60) == "there"


def test_what_cannot_be_written_is_dropped_and_what_comes_later_is_not() -> None:
    code = """
import resource, sys
from weft.machine import own_log

own_log.never_fail()
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
print("dropped", file=sys.stderr, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
print("written", file=sys.stderr)
"""
    log = os.memfd_create("log")
    try:
        assert subprocess.run([sys.executable, "-c", code], stderr=log, check=False, timeout=60).returncode == 0
        assert os.pread(log, 100, 0) == b"written\n"
    finally:
        os.close(log)
