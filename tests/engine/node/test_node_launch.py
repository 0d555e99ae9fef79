"""Real nodes: started, found, joined, killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from waiting import those, wait_until
from weft.engine.node.config import NodeConfig
from weft.engine.node.launch import Attachment, find_nodes, join_node, start_node


def small_node() -> Attachment:
    return start_node(NodeConfig(1, object_store_bytes=16 << 20))


def family(attachment: Attachment) -> list[psutil.Process]:
    """The daemon, its zygote and its workers."""
    assert attachment.process is not None
    daemon = psutil.Process(attachment.process.pid)
    return [daemon, *daemon.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=60)[1]


def test_a_node_is_started_joined_found_and_ended() -> None:
    first = small_node()
    try:
        assert os.readlink(f"/proc/self/fd/{first.segment_fd}").startswith("/memfd:weft")
        assert len(first.root_task) == 12 and first.job == 1 and first.slot > 0
        assert first.address in find_nodes()
        assert first.process is not None and os.getsid(first.process.pid) != os.getsid(0)
        second = join_node(first.address)
        assert (second.job, second.node_id) == (2, first.node_id)
        assert second.slot != first.slot
        second.close()
        second.close()
        assert first.process.poll() is None
    finally:
        processes = family(first)
        first.close()
    assert gone(processes)
    assert first.address not in find_nodes()


def test_a_daemon_shares_its_session_and_so_its_share_of_the_cpus_with_no_worker() -> None:
    node = small_node()
    try:
        daemon, *others = family(node)
        assert others
        session = os.getsid(daemon.pid)
        wait_until(lambda: not those(others, lambda one: os.getsid(one.pid) == session))
    finally:
        node.close()


def test_two_nodes_live_side_by_side_and_the_newest_is_found_first() -> None:
    older = small_node()
    newer = small_node()
    found = find_nodes()
    assert found.index(newer.address) < found.index(older.address)
    older.close()
    assert newer.address in find_nodes() and older.address not in find_nodes()
    newer.close()


def test_a_node_that_cannot_come_up_says_why() -> None:
    with pytest.raises(RuntimeError, match="could not be started: it ended with status 1") as caught:
        start_node(NodeConfig(-1))
    assert "the amount of CPU must be zero or more, but got -1" in str(caught.value)


def test_what_fails_while_a_node_comes_up_ends_that_node() -> None:
    def fail() -> None:
        raise ImportError("half a driver")

    before = set(psutil.Process().children())
    with pytest.raises(ImportError, match="half a driver"):
        start_node(NodeConfig(1, object_store_bytes=16 << 20), meanwhile=fail)
    assert set(psutil.Process().children()) <= before


def test_joining_a_node_that_does_not_run_names_the_ones_that_do() -> None:
    with pytest.raises(ConnectionError, match=r"cannot join the node '@weft-0-none': no such node is running"):
        join_node("@weft-0-none")


def test_a_node_ends_on_sigterm_and_takes_its_workers_along() -> None:
    node = small_node()
    processes = family(node)
    assert node.process is not None
    node.process.terminate()
    assert node.process.wait(20) == 0
    assert gone(processes)
    node.close()


def test_ctrl_c_does_not_reach_a_node() -> None:
    node = small_node()
    assert node.process is not None
    node.process.send_signal(signal.SIGINT)
    join_node(node.address).close()
    node.close()


def test_when_the_daemon_is_killed_the_kernel_ends_its_family() -> None:
    node = small_node()
    processes = family(node)
    os.kill(processes[0].pid, signal.SIGKILL)
    assert node.socket.recv(1) == b""  # how the driver hears of it
    node.close()
    assert gone(processes)


def test_when_the_zygote_is_killed_the_node_ends_with_an_error() -> None:
    node = small_node()
    processes = family(node)
    processes[1].kill()
    assert node.process is not None and node.process.wait(20) == 1
    assert "the zygote died" in node.daemon_log()
    assert gone(processes)
    node.close()


DRIVER = """
import os, sys
from weft.engine.node.config import NodeConfig
from weft.engine.node.launch import start_node
node = start_node(NodeConfig(1, object_store_bytes=16 << 20))
print(node.address, node.process.pid, flush=True)
{then}
"""


@pytest.mark.parametrize(
    "then",
    [
        "os.kill(os.getpid(), 9)",
        "os._exit(0)",
        "if os.fork() == 0: sys.stdin.read()\nos.kill(os.getpid(), 9)",
    ],
    ids=["killed", "exited", "killed with a forked child left behind"],
)
def test_a_node_ends_with_the_driver_that_started_it(then: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(then=then)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None and driver.stdin is not None
        address, pid = driver.stdout.readline().split()
        try:
            daemon = psutil.Process(int(pid))
            assert gone([daemon, *daemon.children(recursive=True)])
        except psutil.NoSuchProcess:
            pass
        assert address not in find_nodes()
        driver.stdin.close()


def test_only_this_users_listening_nodes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name = f"weft-{os.getuid()}-imitation-{os.getpid()}"
    listening.bind(f"\0{name}")
    assert f"@{name}" not in find_nodes()
    listening.listen(1)
    assert f"@{name}" in find_nodes()
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert find_nodes() == []
    listening.close()


@pytest.mark.skipif(os.getuid() != 0, reason="takes the rights to become another user")
def test_what_another_user_listens_on_under_names_like_ours_is_no_node() -> None:
    """Also where nobody gets through to it, and where the name is made to break whoever reads it."""
    pid = os.getpid()
    own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.bind(f"\0weft-0-own-{pid}")
    own.listen(1)
    squatted = [
        b"\0weft-0-squatted-%d" % pid,
        b"\0weft-0-crowded-%d" % pid,
        b"\0weft-0-\xff\xfe-%d" % pid,
        b"\0x\n0: 2 0 zz 5 1 7 @weft-0-\n0: 2 0 10000 5 1 7 @weft-0-a%d" % pid,
    ]
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            kept = []
            for name in squatted:
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                listener.bind(name)
                listener.listen(0)
                kept.append(listener)
            visitor = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            visitor.connect(squatted[1])
            os.write(ready[1], b"!")
            os.read(go[0], 1)
        finally:
            os._exit(0)
    try:
        os.close(ready[1])
        assert os.read(ready[0], 1) == b"!", "the other user could not listen"
        found = find_nodes()  # perhaps also nodes that others of this user run now
        assert f"@weft-0-own-{pid}" in found
        assert not [name for name in found if any(mark in name for mark in ("squatted", "crowded", "\ufffd"))]
        assert "@weft-0-" not in found and f"@weft-0-a{pid}" not in found
    finally:
        os.write(go[1], b"!")
        os.waitpid(child, 0)
        own.close()
        for end in (ready[0], *go):
            os.close(end)


def test_without_an_executable_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.machine.programs.sys.executable", "")
    with pytest.raises(RuntimeError, match=r"sys\.executable"):
        small_node()
