"""Records between nodes, as far as Python has a part in it: names that are new here, and what daemons say.

Runs in the daemon's thread; `native/forwarding.hpp` does the rest.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable

from weft import _native
from weft.engine.cluster.names import Names
from weft.engine.cluster.objects import DAEMON, Objects
from weft.engine.cluster.transport import NodeLink
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess
from weft.net.loop import Loop

TABLE_REMEDY = (
    "Drop refs that are no longer needed, make fewer and larger objects, or give the node more object_store_memory, "
    "which makes the table larger, too"
)
RECORD_HEAD = struct.Struct("<I20x")
"""Of a record in a batch: u32 bytes, then what only the native core reads."""
Handle = Callable[[Process, Process, int, bytes], None]
"""(sender, receiver, kind, payload) of a record from or to a daemon."""


class OutgoingRecords:
    """The records for one node; see `wire.link.Records`."""

    def __init__(self, port: _native.NodePort, node: int) -> None:
        self._port = port
        self._node = node

    def take(self) -> bytes:
        return self._port.take_batch(self._node)

    def hold(self, is_full: bool) -> None:
        if is_full:
            self._port.hold_link(self._node)
        else:
            self._port.release_link(self._node)


class IncomingRecords:
    """Batches of other nodes, to the processes of this one."""

    def __init__(
        self, port: _native.NodePort, loop: Loop, names: Names, objects: Objects, says: Callable[..., None]
    ) -> None:
        """`says(node, sender, receiver, kind, payload)`: what another daemon says, or what is for this one."""
        self._port = port
        self._loop = loop
        self._names = names
        self._objects = objects
        self._says = says

    def came(self, link: NodeLink, batch: memoryview) -> None:
        node = link.peer
        try:
            self.deliver(node, batch, lambda *record: self._says(node, *record))
        except Exception as error:  # one node's nonsense must not end another
            what = f"a batch of records of node {node}"
            print(f"weft: {what} makes no sense: {error!r}", file=sys.stderr, flush=True)
            self._loop.call_later(0, lambda: link.close(f"{what} made no sense"))

    def deliver(self, node: int, batch: bytes | memoryview, handle: Handle) -> None:
        """Each record to its process; what a daemon sends or is sent goes to `handle`."""
        at = 0
        refusal = b""
        while at < len(batch):
            at, stop = self._port.deliver(node, batch, at, refusal)
            refusal = b""
            if stop is None:
                break
            if not isinstance(stop[0], list):
                handle(stop[0], stop[1], stop[2], stop[3])
            elif self._name_processes(stop[0], stop[2], stop[3]):
                is_answer = stop[3] in (kinds.REPLY, kinds.STREAM_ITEM)
                refusal = self._name_objects(stop[1], stop[2] if is_answer else DAEMON)
            else:
                at += RECORD_HEAD.size + RECORD_HEAD.unpack_from(batch, at)[0]

    def _name_processes(self, processes: list[GlobalProcess], to: Process, kind: int) -> bool:
        """Those of which the next record speaks and that are new here. False when there is no room for their names."""
        try:
            for process in processes:
                self._names.to_local(process)
        except RuntimeError as error:
            print(f"weft: a record (kind {kind}) for slot {to[0]} was dropped: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _name_objects(self, objects: list[GlobalObject], owner: Process) -> bytes:
        """The same for objects. The error that stands for those that have no place in the object table, if any."""
        refusal = b""
        for name in objects:
            try:
                self._objects.to_local(name, owner)
            except RuntimeError as error:
                text = f"an object of {name[3]} bytes of another node has no name here: {error}. {TABLE_REMEDY}"
                refusal = _native.error_value(kinds.ErrorCode.OUT_OF_MEMORY, text)
                if owner != DAEMON:
                    self._objects.refuse(name)
        return refusal
