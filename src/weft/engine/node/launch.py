"""Starts and finds node daemons; what a driver needs of this package.

Runs in drivers. A node that a driver starts is its child, in a session of its own so that Ctrl-C in a terminal does not
reach it, and ends when the driver's end of their socket closes, however that comes about.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from weft.engine.node import handshake
from weft.engine.node.config import NodeConfig
from weft.machine.programs import python_command
from weft.net import unix_table
from weft.net.credentials import connect_to_own, peer_pid

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 8192
_CROWDED_S = 1.0
"""So long a node whose line is full is waited for where the kernel does not tell whose it is. A stranger's is always
full, if he likes."""

_open: weakref.WeakSet[Attachment] = weakref.WeakSet()


@dataclass(eq=False)
class Attachment:
    """A driver's hold on a node: all that the native core needs to attach, and the node's life where it is ours."""

    segment_fd: int
    event_fd: int
    slot: int
    generation: int
    job: int
    node_id: str
    address: str
    node_ip: str
    socket: socket.socket
    process: subprocess.Popen[bytes] | None = None
    log_fd: int = -1
    """What the daemon has written to its standard error, when we started it."""
    root_task: bytes = field(default_factory=lambda: os.urandom(12))
    is_closed: bool = False

    def __post_init__(self) -> None:
        _open.add(self)

    def close(self) -> None:
        """Leave the node; wait for its end if we started it. Call it after the native core has detached."""
        if self.is_closed:
            return
        self.is_closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # also where a forked child still holds a copy
        self.socket.close()
        if self.process is not None:
            _end(self.process)
        for fd in (self.segment_fd, self.event_fd, self.log_fd):
            if fd >= 0:
                os.close(fd)

    def daemon_log(self) -> str:
        """The end of what our daemon has written, for error messages; empty when there is nothing."""
        return read_log(self.log_fd) if self.log_fd >= 0 and not self.is_closed else ""


class StartingNode:
    """A node on its way up. The driver can use the time for its own imports, then `join`."""

    def __init__(self, config: NodeConfig) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log_fd = os.memfd_create("weft-daemon-log")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with theirs:
                handshake.ask(self._socket)
                self._process = subprocess.Popen(
                    command(msgspec.structs.replace(config, founder_fd=theirs.fileno())),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=self._log_fd,
                    stderr=self._log_fd,
                    start_new_session=True,
                )
        except BaseException:
            self._give_up(at_once=True)
            raise

    def join(self, meanwhile: Callable[[], None]) -> Attachment:
        """Call `meanwhile`, then wait until it is up. RuntimeError, with what the daemon wrote, when it does not come
        up."""
        try:
            meanwhile()
        except BaseException:
            self._give_up(at_once=True)
            raise
        try:
            self._socket.settimeout(START_TIMEOUT_S)
            return _attachment(self._socket, self._process, self._log_fd)
        except (EOFError, OSError) as error:
            timed_out = isinstance(error, TimeoutError)
            status, log = self._give_up(at_once=timed_out)
            reason = "did not answer in time" if timed_out else f"ended with status {status}"
            raise RuntimeError(f"the node daemon could not be started: it {reason}.\n{log}".rstrip()) from error
        except BaseException:
            self._give_up(at_once=True)
            raise

    def _give_up(self, at_once: bool) -> tuple[int | None, str]:
        """Its exit status and what it wrote."""
        self._socket.close()
        status = None if self._process is None else _end(self._process, at_once)
        log = read_log(self._log_fd)
        os.close(self._log_fd)
        return status, log


def start_node(config: NodeConfig, meanwhile: Callable[[], None] = lambda: None) -> Attachment:
    """Start a node of this driver's own, call `meanwhile` while it comes up, and join it. RuntimeError when it does not
    come up."""
    return StartingNode(config).join(meanwhile)


def join_node(address: str) -> Attachment:
    """Join a running node of this user by its address, as `find_nodes` gives it.

    ConnectionError when there is none, when it refuses, or when it is another user's."""
    connection: socket.socket | None = None
    try:
        connection = connect_to_own(address.removeprefix("unix:"), socket.SOCK_SEQPACKET, START_TIMEOUT_S)
        handshake.ask(connection)
        return _attachment(connection)
    except ConnectionRefusedError as error:
        if connection is not None:
            connection.close()
        running = ", ".join(find_nodes()) or "none"
        reason = "no such node is running" if error.errno else str(error)
        raise ConnectionError(f"cannot join the node {address!r}: {reason}. Running now: {running}") from error
    except (EOFError, OSError) as error:
        if connection is not None:
            connection.close()
        raise ConnectionError(f"cannot join the node {address!r}: {error}") from error


def find_nodes() -> list[str]:
    """The addresses of this user's running nodes on this machine, the newest first."""
    owners = unix_table.listening(f"@weft-{os.getuid()}-")
    found = {name for name, user in owners.items() if user == os.getuid()}
    named = {name for name, user in owners.items() if user is None}
    deadline = time.monotonic() + _CROWDED_S
    while named:
        answers = {name: is_own_node(name) for name in named}
        found |= {name for name, is_own in answers.items() if is_own}
        named = {name for name, is_own in answers.items() if is_own is None}
        if not named or time.monotonic() > deadline:
            break
        time.sleep(_CROWDED_S / 10)
    return sorted(found, reverse=True)  # a name begins with the time of its node's start


def is_own_node(address: str) -> bool | None:
    """Whether a process of this user listens there; None while others wait in line before it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as connection:
        try:
            connection.connect("\0" + address.removeprefix("@"))
            peer_pid(connection)
        except BlockingIOError:
            return None
        except OSError:
            return False
        return True


def is_foreign(address: str) -> bool:
    """Whether a process of another user listens under that name."""
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK) as connection:
            try:
                connection.connect("\0" + address.removeprefix("@"))
                peer_pid(connection)
            except PermissionError:
                return True
            except OSError:
                continue
    return False


def command(config: NodeConfig) -> list[str]:
    return python_command("weft.engine.node.main", msgspec.json.encode(config).decode())


def _attachment(
    connection: socket.socket, process: subprocess.Popen[bytes] | None = None, log_fd: int = -1
) -> Attachment:
    answer, segment_fd, event_fd = handshake.receive_answer(connection)
    connection.settimeout(None)
    return Attachment(
        segment_fd,
        event_fd,
        answer.slot,
        answer.generation,
        answer.job,
        answer.node_id,
        answer.address,
        answer.node_ip,
        connection,
        process,
        log_fd,
    )


def _end(process: subprocess.Popen[bytes], at_once: bool = False) -> int:
    """Wait for a daemon that has been told to end, and make sure of it."""
    if process.poll() is not None:
        return process.returncode
    if at_once:
        process.terminate()
    if not _ends_within(process.pid, STOP_TIMEOUT_S):
        process.send_signal(signal.SIGKILL)  # the kernel ends its zygote and its workers with it
    return process.wait()


def _ends_within(pid: int, timeout_s: float) -> bool:
    """Popen.wait(timeout) looks only every so often, which costs tens of milliseconds."""
    try:
        pid_fd = os.pidfd_open(pid)
    except OSError:
        return True  # somebody else has waited for it
    try:
        poll = select.poll()
        poll.register(pid_fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(pid_fd)


def read_log(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES)).decode("utf-8", "replace")


def _forget_in_child() -> None:
    """A forked child of a driver is no driver: it must not keep the node alive."""
    for attachment in list(_open):
        if not attachment.is_closed:
            attachment.is_closed = True
            attachment.socket.close()


os.register_at_fork(after_in_child=_forget_in_child)
