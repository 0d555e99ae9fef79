"""Records between nodes, as far as Python has a part in it: names that are new here, and what daemons say.

Runs in the daemon's thread; `native/forwarding.hpp` does the rest.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft import _native
from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.intake import MALFORMED
from weft.engine.state import events as ev
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.node.daemon import NodeDaemon

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

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell) -> None:
        self._daemon = daemon
        self._port = daemon.port
        self._shell = shell

    def came(self, link: NodeLink, batch: memoryview) -> None:
        node = link.peer
        try:
            self.deliver(node, batch, lambda *record: self._record_came(node, *record))
        except Exception as error:  # one node's nonsense must not end another
            what = f"a batch of records of node {node}"
            print(f"weft: {what} makes no sense: {error!r}", file=sys.stderr, flush=True)
            self._daemon.loop.call_later(0, lambda: link.close(f"{what} made no sense"))
        self._shell.forward()

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
                self._shell.names.to_local(process)
        except RuntimeError as error:
            print(f"weft: a record (kind {kind}) for slot {to[0]} was dropped: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _name_objects(self, objects: list[GlobalObject], owner: Process) -> bytes:
        """The same for objects. The error that stands for those that have no place in the object table, if any."""
        refusal = b""
        for name in objects:
            try:
                self._shell.objects.to_local(name, owner)
            except RuntimeError as error:
                text = f"an object of {name[3]} bytes of another node has no name here: {error}. {TABLE_REMEDY}"
                refusal = _native.error_value(kinds.ErrorCode.OUT_OF_MEMORY, text)
                if owner != DAEMON:
                    self._shell.objects.refuse(name)
        return refusal

    def _record_came(self, node: int, sender: Process, to: Process, kind: int, payload: bytes) -> None:
        """One from another daemon, or to this one."""
        try:
            if sender[0] == 0:
                self._daemon_says(node, to, kind, payload)
            else:
                self._process_says(self._shell.names.to_local((node, *sender)), kind, payload)
        except RuntimeError as error:  # no slot or ring is free
            print(f"weft: a record (kind {kind}) of node {node} was dropped: {error}", file=sys.stderr, flush=True)

    def _process_says(self, process: Process, kind: int, payload: bytes) -> None:
        """A record that a process of another node sends to this daemon. Its own daemon has not looked at it."""
        try:
            kinds.check_sender(kinds.Role.FAR, kind)
            if not self._shell.holds_back(process, kind, payload):
                self._daemon.rings.handle(process, kind, payload)
        except MALFORMED as error:
            self._daemon.rings.complain(process, kind, error)

    def _daemon_says(self, node: int, to: Process, kind: int, payload: bytes) -> None:
        """A record that another daemon sends to a process of this node, or to this daemon."""
        if kind == kinds.LEASE_GRANT:
            lease, shape, slot, generation, pid = kinds.LEASE_GRANT_BODY.unpack(payload)
            if to[0] == 0:
                self._shell.places.found(node, lease, shape, (slot, generation), pid)
                return
            self._shell.asking.granted(node, to, shape)
        elif kind == kinds.SHAPE_REFUSED:
            return  # its report was old; the next plan asks elsewhere
        if to[0] != 0:
            self._shell.following.head_says(to, kind, payload)
            self._port.send(*to, kind, payload)
        elif kind == kinds.LEASE_RETURN:
            holder = self._shell.names.to_local((node, *DAEMON))
            self._daemon.feed(ev.LeaseReturned(holder, kinds.LEASE_BODY.unpack(payload)[0]))
