"""Forking, killing and reaping, with real processes and a worker of the test's own."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from weft.engine.node import zygote
from weft.engine.node.zygote import COMMAND, EXITED, FAILED, FORK, FORKED, KILL, LEASE, REPORT, Zygote

SLEEPER, PRINTER, RAISER, SIGNALLED = 7, 8, 9, 10


def fake_worker(segment_fd: int, event_fd: int, slot: int, generation: int) -> int:
    """What it does depends on its slot."""
    if slot == SLEEPER:
        os.write(1, b"sleeping\n")
        signal.pause()
    if slot == PRINTER:
        os.write(1, b"out\n")
        os.write(2, b"err\n")
    if slot == RAISER:
        raise ValueError("no worker today")
    if slot == SIGNALLED:
        os.kill(os.getpid(), signal.SIGUSR2)
    return slot + generation


class Nursery:
    """A zygote in a child process, and the daemon's end of it."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.settimeout(20)
        self.pid = os.fork()
        if self.pid == 0:
            self.connection.close()
            sys.stderr = sys.__stderr__  # not the test runner's
            server = Zygote(theirs, 3, 4, fake_worker)
            server._has_preloaded = True
            server.serve()
            os._exit(0)
        theirs.close()

    def fork(self, slot: int, generation: int = 1) -> tuple[int, int]:
        """The read ends of the worker's standard output and error."""
        ends = [os.pipe(), os.pipe()]
        socket.send_fds(self.connection, [COMMAND.pack(FORK, slot, generation)], [write for _, write in ends])
        for _, write in ends:
            os.close(write)
        return ends[0][0], ends[1][0]

    def kill(self, slot: int, generation: int = 1) -> None:
        self.connection.send(COMMAND.pack(KILL, slot, generation))

    def report(self) -> tuple[Any, ...]:
        return REPORT.unpack(self.connection.recv(REPORT.size))

    def end(self) -> int:
        self.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    if made.connection.fileno() >= 0:
        assert made.end() == 0


def read_all(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def test_a_worker_is_forked_runs_and_its_status_is_reported(nursery: Nursery) -> None:
    close(*nursery.fork(20, generation=3))
    kind, slot, generation, pid, _ = nursery.report()
    assert (kind, slot, generation) == (FORKED, 20, 3) and pid > 0
    assert nursery.report() == (EXITED, 20, 3, pid, 23)


def test_output_goes_to_the_pipes_it_was_given(nursery: Nursery) -> None:
    out, err = nursery.fork(PRINTER)
    assert (read_all(out), read_all(err)) == (b"out\n", b"err\n")
    assert [nursery.report()[0], nursery.report()[0]] == [FORKED, EXITED]


def test_a_worker_that_cannot_start_says_why_and_exits_with_one(nursery: Nursery) -> None:
    out, err = nursery.fork(RAISER)
    assert b"ValueError: no worker today" in read_all(err)
    close(out)
    nursery.report()
    assert nursery.report()[-1] == 1


def test_a_signal_is_reported_as_its_negative_number(nursery: Nursery) -> None:
    close(*nursery.fork(SIGNALLED))
    nursery.report()
    assert nursery.report()[-1] == -signal.SIGUSR2


def test_a_kill_reaches_the_worker_of_that_slot_and_no_other(nursery: Nursery) -> None:
    out, err = nursery.fork(SLEEPER)
    assert os.read(out, 9) == b"sleeping\n"
    pid = nursery.report()[3]
    nursery.kill(SLEEPER, generation=2)
    nursery.kill(99)
    nursery.kill(SLEEPER)
    assert nursery.report() == (EXITED, SLEEPER, 1, pid, -signal.SIGKILL)
    nursery.kill(SLEEPER)  # it has been reaped: its pid may be another's by now
    close(out, err)


def test_when_the_daemon_closes_the_socket_every_worker_ends_first(nursery: Nursery) -> None:
    streams = [nursery.fork(SLEEPER, generation) for generation in range(1, 4)]
    pids = [nursery.report()[3] for _ in streams]
    assert nursery.end() == 0
    for out, err in streams:
        read_all(out)  # ends because nobody holds the other end
        close(err)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_are_the_first_to_go_without_memory(nursery: Nursery) -> None:
    def adjusted(pid: int) -> int:
        with open(f"/proc/{pid}/oom_score_adj") as file:
            return int(file.read())

    out, err = nursery.fork(SLEEPER)
    assert os.read(out, 9) == b"sleeping\n"
    assert adjusted(nursery.report()[3]) == 1000
    assert adjusted(nursery.pid) == adjusted(os.getpid())
    close(out, err)


def test_workers_die_with_their_zygote(nursery: Nursery) -> None:
    out, err = nursery.fork(SLEEPER)
    assert os.read(out, 9) == b"sleeping\n"
    pid = nursery.report()[3]
    os.kill(nursery.pid, signal.SIGKILL)
    assert nursery.end() == -signal.SIGKILL
    assert read_all(out) == b""
    close(err)
    reap(pid)


def reap(pid: int) -> None:
    """Wait for an orphan, which is ours or the init process's to bury."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
    raise AssertionError(f"process {pid} is still there")


def test_a_fork_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = Zygote(theirs, 3, 4, fake_worker)

    def no_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    server._fork((5, 1), [])
    assert REPORT.unpack(ours.recv(REPORT.size)) == (FAILED, 5, 1, 0, 11)
    for one in (ours, theirs):
        one.close()
    close(server._wakeup_r, server._wakeup_w)


def test_thread_limits_are_only_set_while_libraries_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with zygote.variables(zygote.SINGLE_THREADED):
        assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("1", "1")
    assert os.environ["OMP_NUM_THREADS"] == "4"
    assert "MKL_NUM_THREADS" not in os.environ


def test_workers_by_a_lease_end_when_the_daemon_says_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """For other nodes start their actors again then. Without other nodes there is no lease."""
    monkeypatch.setattr(zygote, "BEAT_S", 0.05)
    nursery = Nursery()
    pipes = [fd for generation in (1, 2) for fd in nursery.fork(SLEEPER, generation)]
    nursery.connection.send(COMMAND.pack(LEASE, 1, 0))
    told = [nursery.report() for _ in range(4)]
    assert [row[0] for row in told] == [FORKED, FORKED, EXITED, EXITED]
    assert {row[4] for row in told[2:]} == {-signal.SIGKILL}
    for fd in pipes:
        os.close(fd)
    assert nursery.end() == 0


def test_a_lease_that_is_renewed_or_ended_lets_workers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "BEAT_S", 0.2)
    nursery = Nursery()
    pipes = nursery.fork(SLEEPER)
    assert nursery.report()[0] == FORKED
    until = time.monotonic() + 2 * zygote.BEATS * 0.2
    while time.monotonic() < until:
        nursery.connection.send(COMMAND.pack(LEASE, 1, 0))
        nursery.connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            nursery.report()
    nursery.connection.send(COMMAND.pack(LEASE, 0, 0))
    nursery.connection.settimeout(2 * zygote.BEATS * 0.2)
    with pytest.raises(TimeoutError):
        nursery.report()
    for fd in pipes:
        os.close(fd)
    assert nursery.end() == 0
