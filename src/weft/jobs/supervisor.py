"""The process above a job's command: unpacks its files, starts it, keeps its output, ends all that it has started.

    python -P -c "..." PACKAGE_FOLDER CONTROL_FD ORDER_FD

One per job, a child of the node daemon. It reads an Order, and says over the control socket what happens (Started, then
Ended). It adopts the orphans of the command (PR_SET_CHILD_SUBREAPER), so whatever the command leaves behind is found
and killed. When the daemon dies, the socket's end says so and the job is killed; when this process is killed, the
kernel kills the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from weft.jobs.log_files import LogWriter

if TYPE_CHECKING:
    from weft.environments.installed import Installed

STOP_GRACE_S = 3.0
STOP = b"stop"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_READ_BYTES = 64 << 10


class Order(msgspec.Struct, frozen=True):
    """What to run, where."""

    entrypoint: str
    """A command line for /bin/sh."""
    folder: str
    """The command's working directory."""
    log_folder: str
    environment: dict[str, str]
    archives: dict[str, str] = {}
    """Which folders to make of which uploaded ones. Here: a large one would stop the daemon's loop, and so its node."""
    installed: dict[str, object] = {}
    """The fields "pip" or "uv" of its runtime environment."""
    stop_grace_s: float = STOP_GRACE_S


class Started(msgspec.Struct, tag=True, frozen=True):
    pid: int


class Ended(msgspec.Struct, tag=True, frozen=True):
    """`exit_code` None: it could not be started, and `message` says why."""

    exit_code: int | None
    message: str = ""


reports = msgspec.msgpack.Decoder(Started | Ended)


def main() -> None:
    """The whole life of it; never returns."""
    control = socket.socket(fileno=int(sys.argv[1]))
    order_fd = int(sys.argv[2])
    order = msgspec.msgpack.decode(os.pread(order_fd, os.fstat(order_fd).st_size, 0), type=Order)
    os.close(order_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the daemon decides, over the socket
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write("weft-job")
    log = LogWriter(order.log_folder)
    try:
        ended = _run(order, control, log)
    except Exception as error:
        ended = Ended(None, f"its command could not be started: {error}")
        log.write(f"weft: {ended.message}\n".encode())
    log.close()
    with contextlib.suppress(OSError):
        control.send(msgspec.msgpack.encode(ended))
    os._exit(0)


def _run(order: Order, control: socket.socket, log: LogWriter) -> Ended:
    environment = dict(order.environment)
    _unpack(order.archives)
    _install(order, environment)
    output, child_end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(output, False)
    parent = os.getpid()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", order.entrypoint],
            cwd=order.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=child_end,
            stderr=child_end,
            start_new_session=True,
            preexec_fn=lambda: _die_with(parent),
        )
    finally:
        os.close(child_end)
    with contextlib.suppress(OSError):  # the daemon is gone: `_watch` sees that at once
        control.send(msgspec.msgpack.encode(Started(process.pid)))
    try:
        deadline = _watch(process, control, output, log, order.stop_grace_s)
        if deadline:
            _await_descendants(deadline, output, log)
    finally:
        _end_descendants()
    _read(output, log)
    return Ended(process.returncode)


def _unpack(given: dict[str, str]) -> None:
    if given:
        from weft.environments import archives, packages

        for folder, archive in given.items():
            archives.unpack(archive, folder, packages.most_bytes())


def _install(order: Order, environment: dict[str, str]) -> None:
    """Put what pip or uv installs before everything else on the command's path."""
    if order.installed:
        from weft.environments import installed

        packages: Installed | None = installed.ensure(order.installed, environment, order.folder)
        if packages is not None:
            environment["VIRTUAL_ENV"] = packages.folder
            environment["PATH"] = os.pathsep.join([os.path.dirname(packages.python), environment.get("PATH", "")])


def _die_with(parent: int) -> None:
    """In the command's process, before it is executed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # what is ignored here would be ignored there
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _watch(
    process: subprocess.Popen[bytes], control: socket.socket, output: int, log: LogWriter, grace_s: float
) -> float:
    """Until the command has ended, by itself, by a stop, or because the daemon is gone.

    After a stop: the time at which the grace ends."""
    pid_fd = os.pidfd_open(process.pid)
    poll = select.poll()
    for fd in (pid_fd, control.fileno(), output):
        poll.register(fd, select.POLLIN)
    deadline = 0.0
    try:
        while process.poll() is None:
            wait_ms = None if not deadline else max(0, int((deadline - time.monotonic()) * 1000))
            for fd, _ in poll.poll(wait_ms):
                if fd == output and not _read(output, log):
                    poll.unregister(output)
                elif fd == control.fileno():
                    if control.recv(64) != STOP:
                        return 0.0  # the daemon is gone
                    _signal_group(process.pid, signal.SIGTERM)
                    deadline = deadline or time.monotonic() + grace_s
            if deadline and time.monotonic() >= deadline:
                _signal_group(process.pid, signal.SIGKILL)
                process.wait()
        return deadline
    finally:
        os.close(pid_fd)
        if process.poll() is None:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()


def _await_descendants(deadline: float, output: int, log: LogWriter) -> None:
    """A shell ends at once when it is asked to; what it has started may need its time to clean up."""
    while (left := descendants(os.getpid())) and (wait_s := deadline - time.monotonic()) > 0:
        poll = select.poll()
        pid_fds = []
        try:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    pid_fds.append(os.pidfd_open(pid))
            for fd in (*pid_fds, output):
                poll.register(fd, select.POLLIN)
            poll.poll(int(wait_s * 1000))
        finally:
            for fd in pid_fds:
                os.close(fd)
        _read(output, log)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _read(output: int, log: LogWriter) -> bool:
    """All that is there; False when nobody can write any more."""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(output, _READ_BYTES):
            log.write(data)
        return False
    return True


def _end_descendants() -> None:
    """Kill whatever the command has left behind; orphans have become children of this process."""
    while left := descendants(os.getpid()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def descendants(root: int) -> list[int]:
    """The living processes below that one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found, fresh = [], [root]
    while fresh:
        fresh = [pid for pid, parent in parents.items() if parent in fresh]
        found += fresh
    return found
