"""The node of a local session: one thread of the driver's, without a process beside it.

It makes the segment and answers what the process asks of its node daemon, by the same state machine and the same
requests: placement groups, names, resources, room in the object store. It never has a worker: tasks and actors are
run by `tasks` and `actors`, on the threads that submit them.

Runs on its own thread; `start`, `close`, `kill` and `cancel` on the user's.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from weft import _native
from weft.engine.node import intake, outgoing
from weft.engine.node.chronicle import Chronicle
from weft.engine.node.config import NodeConfig, decide
from weft.engine.node.methods import Asker
from weft.engine.node.requests import Requests
from weft.engine.node.spilling import Spilling
from weft.engine.process.options.call_options import TaskOptions
from weft.engine.process.options.init_options import InitOptions
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.node import NodeState
from weft.engine.wire import kinds
from weft.engine.wire.messages import Message, Request
from weft.inspection.listing import Listing
from weft.local.local_actors import LocalActors
from weft.local.local_tasks import LocalTask
from weft.store.tables import MemoryTables

JOB = 1
ADDRESS = "in-process"
_encode = msgspec.msgpack.Encoder().encode


class LocalNode:
    """One local session's node, and its end of the driver's attachment."""

    def __init__(self, options: InitOptions) -> None:
        offer = decide(
            NodeConfig(
                num_cpus=options.num_cpus,
                num_gpus=options.num_gpus,
                resources=options.resources,
                object_store_bytes=options.object_store_bytes,
                labels=options.labels,
            )
        )
        self._port = _native.NodePort(offer.object_store_bytes)
        self.process = self._port.reserve_slot()
        self.node_id = os.urandom(16).hex()
        self.root_task = os.urandom(12)
        self._state = NodeState(offer.total, offer.gpu_ids)
        self._state.standing.own.name(self.node_id, options.labels)
        self._spilling = Spilling(self._port, lambda slot: f"this process (pid {os.getpid()})")
        tables = MemoryTables()
        self._requests = Requests(
            self._state,
            self._port,
            tables,
            Chronicle(tables, self.node_id, lambda _: False),
            Listing(self._state, self.node_id, ADDRESS, options.labels, lambda process: (self.node_id, process)),
            self._feed,
            lambda delay_s, call: None,  # the only process that could be too busy to answer is the one that asks
            list,
            {"flush_output": lambda asker: None, "storage_folder": lambda asker: "", "dashboard": _no_dashboard},
        )
        self.actors = LocalActors()
        self._ending = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="weft-local-node", daemon=True)
        self.slot, self.generation = self.process
        self.job, self.address, self.node_ip = JOB, ADDRESS, self._state.standing.home.ip

    @property
    def segment_fd(self) -> int:
        return self._port.segment_fd

    @property
    def event_fd(self) -> int:
        return self._port.event_fd

    def daemon_log(self) -> str:
        """There is no other process that could have written anything."""
        return ""

    def task(self, function: Callable[..., Any], name: str, options: TaskOptions) -> LocalTask:
        """What `remote` of that function calls."""
        return LocalTask(function, name, options)

    def start(self) -> None:
        """Serve; the driver is attached by now."""
        self._feed(ev.DriverJoined(self.process, JOB, os.getpid(), True))
        self._thread.start()

    def restarts_of(self, actor: bytes) -> int:
        return self.actors.restarts_of(actor)

    def close(self) -> None:
        """End the actors' threads and the node's own. The driver is detached by now."""
        self.actors.close()
        if self._thread.is_alive():
            os.eventfd_write(self._ending, 1)
            self._thread.join()
        self._port.mark_dead(*self.process)
        self._spilling.close()
        self._port.close()
        os.close(self._ending)

    # ---- on the node's thread ----

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._port.event_fd, select.POLLIN)
        poll.register(self._ending, select.POLLIN)
        poll.register(self._spilling.fd, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._spilling.fd in ready:
                self._spilling.completed()
            for slot, generation, kind, payload in self._port.drain():
                try:
                    self._handle((slot, generation), kind, payload)
                except Exception as error:  # the session goes on; the one who asked has its timeout
                    print(f"weft: a record (kind {kind}) failed: {error!r}", file=sys.stderr, flush=True)
            if self._ending in ready:
                return

    def _answer(self, process: ev.Process, kind: int, body: bytes) -> None:
        self._port.send(*process, kind, body)

    def _handle(self, process: ev.Process, kind: int, payload: bytes) -> None:
        if kind == kinds.NEED_SPACE:
            self._spilling.need_space(
                payload,
                lambda answer: self._answer(process, kinds.SPACE, answer or self._spilling.refuse_space(payload)),
            )
        elif kind == kinds.RESTORE:
            self._spilling.restore(
                payload,
                lambda answer: self._answer(process, kinds.RESTORED, answer or self._spilling.refuse_restore(payload)),
            )
        elif kind == kinds.ACTOR_DROP:
            self.actors.dropped(payload[:16])
        else:
            event = intake.decode(process, kind, payload)
            if isinstance(event, Request):
                if (reply := self._requests.answer(process, event)) is not None:
                    self._send(process, reply)
            elif event is not None:
                self._feed(event)

    def _feed(self, event: ev.Event) -> None:
        for one in self._state.handle(event):
            if isinstance(one, do.Tell):
                self._port.send(*one.process, *outgoing.encode(one))

    def _send(self, process: ev.Process, message: Message) -> None:
        self._port.send(*process, kinds.CONTROL, _encode(message))

    # ---- for the driver's attachment ----

    def cancel(self, ref: Any, force: bool) -> None:
        """Of what runs: only calls of concurrent actors do when somebody can ask."""
        self.actors.cancel(ref.binary(), force)


def _no_dashboard(asker: Asker) -> None:
    raise RuntimeError("there is no dashboard in local_mode")
