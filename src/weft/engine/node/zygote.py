"""The zygote: a clean, single-threaded Python that forks workers in about a millisecond.

It is forked once from the daemon while that is still single-threaded, imports what every worker needs, and then waits
for commands. Workers inherit the mapped segment and the eventfd. Because it is their parent it alone knows for sure
which process a pid is, so it also kills them, and it reports each one's end.

Deaths: a worker dies with its zygote and the zygote with its daemon (PR_SET_PDEATHSIG, which needs that the forking
thread lives on: each has one thread only). When the daemon closes the socket the zygote kills and reaps every
worker, then exits. Where there are other nodes, a daemon that stands still is given up by them, and its actors start
again elsewhere: so its workers run by a lease, which the daemon renews with each heartbeat. When it does not for
`LEASE_S`, the zygote kills them, before the others give the node up.

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
import time
from collections.abc import Callable, Iterator, Mapping

from weft.machine import strays

FORK, KILL, LEASE = 1, 2, 6
"""Commands: fork a worker for a slot (with its two output pipes, and what it is bound to where that is known from the
start), kill the worker of a slot, let the workers run for another `LEASE_S` (slot 1) or for ever (slot 0)."""
FORKED, EXITED, FAILED = 3, 4, 5
"""Reports: a worker's pid; its exit status (negative: the signal); the errno for which it could not be forked."""
COMMAND = struct.Struct("<BII")
"""kind, slot, generation."""
REPORT = struct.Struct("<BIIii")
"""kind, slot, generation, pid, status or errno."""

BEATS, BEAT_S = 4, 2.0
LEASE_S = BEATS * BEAT_S
"""Less than silence is borne by other nodes, by more than a heartbeat."""
IDLE_MS = 100
"""After so long without a command there is time to import what workers may need."""
NEEDED = (
    "weft.engine.process.worker.main",
    "weft.engine.process.objects.ref_callbacks",
    "weft.engine.process.objects.put",
    "weft.engine.process.api",
    "weft.engine.process.actors.actor_instance",
    "weft.engine.process.calls.remote_function",
    "weft.engine.process.actors.actor_class",
    "weft.engine.process.actors.named_actors",
)
OFTEN_NEEDED = ("asyncio", "concurrent.futures.thread", "weft.engine.process.actors.async_group", "numpy")
SINGLE_THREADED = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""While numeric libraries are imported: they start no threads. Each worker sets its own limits later."""
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
        self._beats_left: int | None = None
        """Of the lease; None while it is for ever."""
        self._beat_at = 0.0

    def serve(self) -> None:
        """Until the daemon closes the socket."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_w, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._daemon, select.POLLIN)
        poll.register(self._wakeup_r, select.POLLIN)
        while True:
            ready = dict(poll.poll(self._wait_ms()))
            if not ready and not self._has_preloaded:
                self._preload()
            self._count_down()
            if self._wakeup_r in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup_r, 4096)
                self._reap()
            if self._daemon.fileno() in ready and not self._obey():
                break
        self._end_all()

    def _wait_ms(self) -> float | None:
        if not self._has_preloaded:
            return IDLE_MS
        return None if self._beats_left is None else max(0.0, self._beat_at - time.monotonic()) * 1000

    def _renew(self, is_limited: bool) -> None:
        self._beats_left = BEATS if is_limited else None
        self._beat_at = time.monotonic() + BEAT_S

    def _count_down(self) -> None:
        """Beats, not seconds: while this process stood still, or imported something, the daemon may have spoken."""
        now = time.monotonic()
        if self._beats_left is None or now < self._beat_at:
            return
        if now - self._beat_at < BEAT_S / 2:
            self._beats_left -= 1
        self._beat_at = now + BEAT_S
        if self._beats_left <= 0:
            self._beats_left = None
            with contextlib.suppress(OSError):  # its log's disk is full
                print(
                    f"weft: the node daemon has stood still for {LEASE_S:g} s: its workers end, for the other nodes "
                    "are about to start what runs here elsewhere",
                    file=sys.stderr,
                    flush=True,
                )
            for pid in self._slots:
                os.kill(pid, signal.SIGKILL)

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
        elif kind == LEASE:
            self._renew(bool(slot))
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
            be_first_without_memory()
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
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
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
        with variables(SINGLE_THREADED):
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
def variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """What is imported or started meanwhile finds them in the environment; nothing later does."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
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


def be_first_without_memory() -> None:
    """Where memory runs out, the kernel ends a worker, whose work is done again, and no driver."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def main(daemon: socket.socket, segment_fd: int, event_fd: int, parent: int) -> None:
    """The zygote's whole life, in the process just forked from the daemon. Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()  # CPUs are shared out by sessions, too (autogroups): a lease does not wait behind workers
        die_with_parent(parent)
        strays.adopt()
        strays.mark(parent)
        set_process_name("weft-zygote")
        gc.disable()
        for module in NEEDED:
            __import__(module)
        worker_main: WorkerMain = sys.modules["weft.engine.process.worker.main"].main
        gc.enable()
        gc.freeze()
        Zygote(daemon, segment_fd, event_fd, worker_main).serve()
        status = 0
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        os._exit(status)
