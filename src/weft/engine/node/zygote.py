"""The zygote: a clean, single-threaded Python that forks workers in about a millisecond.

It is forked once from the daemon while that is still single-threaded, imports what every worker needs, and then waits
for commands. Workers inherit the mapped segment and the eventfd. Because it is their parent it alone knows for sure
which process a pid is, so it also kills them, and it reports each one's end.

Deaths: a worker dies with its zygote and the zygote with its daemon (PR_SET_PDEATHSIG, which needs that the forking
thread lives on: each has one thread only). When the daemon closes the socket the zygote kills and reaps every
worker, then exits.

Invariants:
    ZYG-1  it has one thread, ever: libraries with thread pools are imported with the pools forced to size one.
    ZYG-2  a signal is sent only to a process that it has forked and not yet reaped.
    ZYG-3  every fork command is answered by FORKED and later EXITED, or by FAILED alone.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator

FORK, KILL = 1, 2
"""Commands: fork a worker for a slot (with its two output pipes, and what it is bound to where that is known from the
start), kill the worker of a slot."""
FORKED, EXITED, FAILED = 3, 4, 5
"""Reports: a worker's pid; its exit status (negative: the signal); the errno for which it could not be forked."""
COMMAND = struct.Struct("<BII")
"""kind, slot, generation."""
REPORT = struct.Struct("<BIIii")
"""kind, slot, generation, pid, status or errno."""

IDLE_MS = 100
"""After so long without a command there is time to import what workers may need."""
NEEDED = (
    "weft.engine.process.worker",
    "weft.engine.process.refs",
    "weft.engine.process.api",
    "weft.engine.process.actor_instance",
    "weft.engine.process.remote_function",
    "weft.engine.process.actor_class",
    "weft.engine.process.named_actors",
)
OFTEN_NEEDED = ("asyncio", "concurrent.futures.thread", "weft.engine.process.async_group", "numpy")
_SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_PR_SET_PDEATHSIG = 1

WorkerMain = Callable[[int, int, int, int], int]


class Zygote:
    """Serves one daemon."""

    def __init__(self, daemon: socket.socket, segment_fd: int, event_fd: int, worker_main: WorkerMain) -> None:
        self._daemon = daemon
        self._segment_fd = segment_fd
        self._event_fd = event_fd
        self._worker_main = worker_main
        self._pids: dict[tuple[int, int], int] = {}
        self._slots: dict[int, tuple[int, int]] = {}
        self._wakeup_r, self._wakeup_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._has_preloaded = False

    def serve(self) -> None:
        """Until the daemon closes the socket."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_w, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._daemon, select.POLLIN)
        poll.register(self._wakeup_r, select.POLLIN)
        while True:
            ready = dict(poll.poll(None if self._has_preloaded else IDLE_MS))
            if not ready:
                self._preload()
            if self._wakeup_r in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup_r, 4096)
                self._reap()
            if self._daemon.fileno() in ready and not self._obey():
                break
        self._end_all()

    def _obey(self) -> bool:
        """One command; False at the end of file."""
        try:
            data, fds, _, _ = socket.recv_fds(self._daemon, COMMAND.size, 3)
        except ConnectionError:
            return False
        if not data:
            return False
        kind, slot, generation = COMMAND.unpack(data)
        if kind == FORK:
            self._fork((slot, generation), fds)
        elif (pid := self._pids.get((slot, generation))) is not None:
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own (ZYG-2)
        return True

    def _fork(self, slot: tuple[int, int], pipes: list[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._report(FAILED, slot, 0, error.errno or 1)
        else:
            if pid == 0:
                self._be_worker(slot, pipes, parent)
            self._pids[slot] = pid
            self._slots[pid] = slot
            self._report(FORKED, slot, pid, 0)
        for fd in pipes:
            os.close(fd)

    def _be_worker(self, slot: tuple[int, int], pipes: list[int], parent: int) -> None:
        """In the child: cut what ties it to the zygote, then be a worker. Never returns."""
        status = 1
        try:
            die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._daemon.close()
            os.close(self._wakeup_r)
            os.close(self._wakeup_w)
            for number, fd in enumerate(pipes[:2], start=1):
                os.dup2(fd, number)
                os.close(fd)
            set_process_name("weft-worker")
            if len(pipes) > 2:
                from weft.engine.process.runtime_env import launch

                status = launch.run(pipes[2], self._segment_fd, self._event_fd, *slot)
            else:
                status = self._worker_main(self._segment_fd, self._event_fd, *slot)
        except BaseException as error:
            sys.__excepthook__(type(error), error, error.__traceback__)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(status & 0xFF)

    def _reap(self) -> None:
        while self._slots:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            slot = self._slots.pop(pid, None)
            if slot is not None:
                del self._pids[slot]
                self._report(EXITED, slot, pid, os.waitstatus_to_exitcode(status))

    def _report(self, kind: int, slot: tuple[int, int], pid: int, status: int) -> None:
        with contextlib.suppress(ConnectionError):
            self._daemon.send(REPORT.pack(kind, *slot, pid, status))

    def _preload(self) -> None:
        """Import what workers often need, while nobody waits (ZYG-1)."""
        self._has_preloaded = True
        with single_threaded_libraries():
            for module in OFTEN_NEEDED:
                with contextlib.suppress(Exception):
                    __import__(module)
        gc.collect()
        gc.freeze()

    def _end_all(self) -> None:
        for pid in self._slots:
            os.kill(pid, signal.SIGKILL)
        for pid in list(self._slots):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


@contextlib.contextmanager
def single_threaded_libraries() -> Iterator[None]:
    """While numeric libraries are imported: they start no threads. Each worker sets its own limits later."""
    before = {name: os.environ.get(name) for name in _SINGLE_THREADED}
    os.environ.update(dict.fromkeys(_SINGLE_THREADED, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent dies, now if it has already."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def set_process_name(name: str) -> None:
    """What ps and top show."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(name)


def main(daemon: socket.socket, segment_fd: int, event_fd: int, parent: int) -> None:
    """The zygote's whole life, in the process just forked from the daemon. Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(parent)
        set_process_name("weft-zygote")
        gc.disable()
        for module in NEEDED:
            __import__(module)
        worker_main: WorkerMain = sys.modules["weft.engine.process.worker"].main
        gc.enable()
        gc.freeze()
        Zygote(daemon, segment_fd, event_fd, worker_main).serve()
        status = 0
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        os._exit(status)
