"""What processes say to their daemon over their rings: each record is checked, decoded and given to the part it is for.

Runs in the daemon's thread. A record that makes no sense is dropped; the daemon goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from weft import _native
from weft.engine.node import intake
from weft.engine.node.nodes import Nodes
from weft.engine.state import events as ev
from weft.engine.state.events import Process
from weft.engine.state.workers import WorkerPool
from weft.engine.wire import kinds
from weft.engine.wire.messages import Request

LINGER_NS = 100_000
"""The daemon stays awake for so long after a request."""
MOST_LINGERS = 64
"""Then the rest of the loop has its turn."""


class Rings:
    """One daemon's end of them. `takers`: who takes the records that are neither events nor requests, by kind."""

    def __init__(
        self,
        port: _native.NodePort,
        workers: WorkerPool,
        nodes: Nodes,
        feed: Callable[[ev.Event], None],
        answer: Callable[[Process, Request], None],
        takers: dict[int, Callable[[Process, bytes], None]],
    ) -> None:
        self._port = port
        self._workers = workers
        self._nodes = nodes
        self._feed = feed
        self._answer = answer
        self._takers = takers
        self._complained: set[tuple[Process, int]] = set()
        """Senders, and kinds of theirs that were dropped."""

    def rung(self) -> None:
        """Handle what has come. Who asks for something mostly asks for more once it is answered, so after a request
        the daemon stays awake for a moment: a wake-up costs more than most answers do."""
        for _ in range(MOST_LINGERS):
            if not self.drain() or not self._port.linger(LINGER_NS):
                return
        self.drain()

    def drain(self) -> bool:
        """Handle all records that have come; whether there was a request or the like among them."""
        asked = False
        cluster = self._nodes.cluster
        for slot, generation, kind, payload in self._port.drain():
            asked = asked or kind == kinds.CONTROL
            process = (slot, generation)
            try:
                kinds.check_sender(self._role_of(process), kind)
                if cluster is None or not cluster.takes(process, kind, payload):
                    self.handle(process, kind, payload)
            except intake.MALFORMED as error:
                self.complain(process, kind, error)
        if cluster is not None:
            cluster.forward()
        return asked

    def _role_of(self, process: Process) -> kinds.Role:
        if not self._nodes.is_local(process):
            return kinds.Role.FAR
        return kinds.Role.WORKER if process in self._workers.by_process else kinds.Role.DRIVER

    def handle(self, process: Process, kind: int, payload: bytes) -> None:
        """ValueError or its kin (`intake.MALFORMED`) when it makes no sense."""
        event = intake.decode(process, kind, payload)
        if isinstance(event, ev.Event):
            self._feed(event)
        elif isinstance(event, Request):
            self._answer(process, event)
        elif (take := self._takers.get(kind)) is not None:
            take(process, payload)
        else:
            raise ValueError("not a record for the daemon")

    def complain(self, process: Process, kind: int, error: Exception) -> None:
        """A record makes no sense, or is not its sender's to say: it is dropped, and told once for each."""
        if (process, kind) not in self._complained:
            self._complained.add((process, kind))
            what = f"a malformed record (kind {kind}) of the process in slot {process[0]}, generation {process[1]},"
            print(f"weft: {what} was dropped by the node daemon: {error}", file=sys.stderr, flush=True)

    def process_died(self, process: Process) -> None:
        self._complained = {one for one in self._complained if one[0] != process}
