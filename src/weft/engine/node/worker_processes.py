"""Workers as processes: reserving a slot, forking through the zygote, ending, and why one ended.

Runs in the daemon's thread. What a death leads to is the daemon's affair.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from weft.engine.node import outgoing
from weft.engine.node.config import PROCESSES_VARIABLE
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.events import Process
from weft.engine.state.memory_pressure import StoppedForMemory
from weft.engine.state.stuck import WARN_AFTER_TICKS
from weft.engine.state.workers import Place, WorkerPool, how_ended
from weft.net.loop import OUT_OF_DESCRIPTORS, Loop

if TYPE_CHECKING:
    from weft import _native
    from weft.engine.node.folders import Folders
    from weft.engine.node.memory import DeclaredLimits
    from weft.engine.node.output import WorkerOutput
    from weft.engine.node.zygote_link import ZygoteLink

FORK_AGAIN_S = 0.1
SLOTS_REMEDY = (
    f"Tasks wait until one of them ends; actors, too, and fail when none has ended for {WARN_AFTER_TICKS} s. Set "
    f"{PROCESSES_VARIABLE} before the node starts for more room"
)
_encode = msgspec.msgpack.Encoder().encode


class WorkerProcesses:
    """One node's. `zygote` and `limits` are set once they are there: they report to this."""

    zygote: ZygoteLink
    limits: DeclaredLimits

    def __init__(
        self,
        loop: Loop,
        port: _native.NodePort,
        output: WorkerOutput,
        folders: Folders,
        workers: WorkerPool,
        feed: Callable[[ev.Event], None],
        died: Callable[[Process, str, int, int | None], None],
    ) -> None:
        self._loop = loop
        self._port = port
        self._output = output
        self._folders = folders
        self._workers = workers
        self._feed = feed
        self._died = died
        self._stopped: dict[Process, StoppedForMemory] = {}
        """Why workers are being stopped that nobody asked to end."""

    def fork(self, one: do.ForkWorker) -> None:
        try:
            process = self._port.reserve_slot()
        except RuntimeError as error:
            self._feed(ev.SlotsExhausted(one.ticket, f"{error}. {SLOTS_REMEDY}"))
            return
        self._feed(ev.SlotReserved(one.ticket, process))
        self._fork_into(process, one)

    def _fork_into(self, process: Process, one: do.ForkWorker) -> None:
        pipes: list[int] = []
        try:
            pipes = self._output.open(process)
            if one.bind is not None:
                self._folders.has_some = True
                pipes.append(_in_memory(_encode(one.bind)))
        except OSError as error:
            why = error.strerror or str(error)
            for fd in pipes:
                os.close(fd)
            self._output.close(process)
            if error.errno in OUT_OF_DESCRIPTORS:
                self._loop.call_later(FORK_AGAIN_S, lambda: self._fork_again(process, one, why))
            else:
                self._loop.call_later(0, lambda: self.fork_failed(process, why))  # not in the middle of a batch
            return
        self.zygote.fork(process, pipes)

    def _fork_again(self, process: Process, one: do.ForkWorker, why: str) -> None:
        """There may be descriptors now. Whoever wanted it may have been told meanwhile to end it."""
        worker = self._workers.by_process.get(process)
        if worker is None or worker.place is Place.ENDING:
            self.fork_failed(process, why)
        else:
            self._fork_into(process, one)

    def bind(self, one: do.BindWorker) -> None:
        self._folders.has_some |= bool(one.binding.runtime_env)
        self._port.send(*one.process, *outgoing.encode(one))

    def kill(self, process: Process) -> None:
        """A process of this node."""
        self.zygote.kill(process)

    def kill_for_another(self, process: Process) -> None:
        """A node asked for it: what others have sent to the process is dropped."""
        self._port.refuse_records(*process)
        self.kill(process)

    def stop_for_memory(self, process: Process, why: StoppedForMemory) -> None:
        self._stopped[process] = why
        self.kill(process)

    # ---- what the zygote says ----

    def forked(self, process: Process, pid: int) -> None:
        self.limits.forked(process, pid)
        self._feed(ev.WorkerForked(process, pid))

    def exited(self, process: Process, pid: int, status: int) -> None:
        killed = self.limits.exited(process, pid)
        if (why := self._stopped.pop(process, killed)) is None:
            self._died(process, f"{how_ended(status)} (pid {pid})", status, None)
        else:
            self._died(process, why.text, status, why.peak_bytes)

    def fork_failed(self, process: Process, why: str) -> None:
        self._died(process, f"its process could not be forked: {why}", 1, None)


def _in_memory(data: bytes) -> int:
    """A descriptor to read it from: it may be longer than a command."""
    fd = os.memfd_create("weft-binding")
    os.write(fd, data)
    return fd
