"""What people are told of a node: failures, what actors and workers died of, what workers write, who a slot is.

Runs in the daemon's thread.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from weft.engine.node.chronicle import ACTOR, ERROR, WARNING, WORKER, Chronicle
from weft.engine.state import instructions as do
from weft.engine.state.actors import Stage
from weft.engine.state.events import Process
from weft.engine.state.instructions import Fault
from weft.engine.state.node import NodeState
from weft.engine.state.workers import Place
from weft.engine.wire.messages import LogLines, Message
from weft.observe.log_store import LogStore

FAILURES_KEPT = 50


class People:
    """One node's side to them."""

    def __init__(
        self,
        state: NodeState,
        node_id: str,
        chronicle: Chronicle,
        logs: LogStore,
        send: Callable[[Process, Message], None],
    ) -> None:
        self._state = state
        self._node_id = node_id
        self._chronicle = chronicle
        self.logs = logs
        self._send = send
        self.failures: deque[dict[str, Any]] = deque(maxlen=FAILURES_KEPT)
        """What has gone wrong here lately."""
        self._busy_s = time.monotonic()

    def idle_s(self) -> float:
        """How long nothing has been held here; looked at after each event."""
        if self._state.resources.available != self._state.resources.total:
            self._busy_s = time.monotonic()
        return time.monotonic() - self._busy_s

    def note_actor(self, one: do.RecordActor) -> None:
        """Tell the chronicle of what nobody asked for."""
        actor = self._state.actors.by_id.get(one.actor)
        if actor is None or isinstance(actor.ending, Fault):
            return
        if one.state == Stage.DEAD.value:
            text = actor.cause.text if isinstance(actor.cause, Fault) else f"the constructor of {actor} raised"
            self._chronicle.note(ACTOR, actor.id.hex(), text, ERROR)
        elif one.state == Stage.PENDING.value and actor.incarnation and actor.unavailable is not None:
            self._chronicle.note(ACTOR, actor.id.hex(), actor.unavailable.text, WARNING)

    def note_death(self, process: Process, reason: str, status: int) -> None:
        """Of a worker that nobody asked to end."""
        worker = self._state.workers.by_process.get(process)
        if worker is None or worker.place is Place.ENDING or status == 0:
            return
        actor = self._state.actors.of_worker(process)
        job = f" of job {worker.binding.job}" if worker.binding is not None else ""
        what = str(actor) if actor is not None else f"a worker{job}"
        if actor is None:
            self._chronicle.note(WORKER, str(worker.pid), f"{what} died: {reason}", WARNING)
        self.failures.append({"time_s": time.time(), "node_id": self._node_id, "what": f"{what} died: {reason}"})

    def written(self, process: Process, stream: str, lines: list[tuple[str, str]]) -> None:
        """By a worker: for the log, and for its driver."""
        worker = self._state.workers.by_process.get(process)
        job = self._state.job_of(process)
        if worker is not None:
            self.logs.add(worker.pid, 0 if job is None else job.id, stream, lines)
        if worker is None or job is None:
            text = "".join(f"{line}\n" for _, line in lines)
            os.write(2, text.encode("utf-8", "replace"))
        elif job.is_driver_alive and (job.hello is None or job.hello.log_to_driver):
            self._send(job.driver, LogLines(worker.pid, stream, lines))

    def name_of_slot(self, slot: int) -> str:
        """Who a slot is, for error messages."""
        for process, job in self._state.drivers.items():
            if process[0] == slot:
                return f"the driver (pid {job.pid})"
        for process, worker in self._state.workers.by_process.items():
            if process[0] == slot:
                actor = self._state.actors.of_worker(process)
                return str(actor) if actor is not None else f"a worker (pid {worker.pid})"
        return "a process that has ended"
