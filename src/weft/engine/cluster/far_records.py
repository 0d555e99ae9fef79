"""What daemons of other nodes say to this one and its processes, and processes of other nodes to this daemon.

Runs in the daemon's thread. The records come through `records`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from weft import _native
from weft.engine.cluster.following import Following
from weft.engine.cluster.names import Names
from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.places import Places
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.intake import MALFORMED
from weft.engine.node.rings import Rings
from weft.engine.state import events as ev
from weft.engine.state.asking import Asking
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm


class FarRecords:
    """One daemon's."""

    def __init__(
        self,
        port: _native.NodePort,
        flush_output: Callable[[], None],
        feed: Callable[[ev.Event], None],
        rings: Rings,
        names: Names,
        places: Places,
        asking: Asking,
        following: Following,
        holds_back: Callable[[Process, int, bytes], bool],
    ) -> None:
        """`holds_back`: whether a record waits until this node serves as head, or is not its affair."""
        self._port = port
        self._flush_output = flush_output
        self._feed = feed
        self._rings = rings
        self._names = names
        self._places = places
        self._asking = asking
        self._following = following
        self._holds_back = holds_back

    def say(self, node: int, sender: Process, to: Process, kind: int, payload: bytes) -> None:
        """One from another daemon, or to this one."""
        try:
            if sender[0] == 0:
                self._daemon_says(node, to, kind, payload)
            else:
                self._process_says(self._names.to_local((node, *sender)), kind, payload)
        except RuntimeError as error:  # no slot or ring is free
            print(f"weft: a record (kind {kind}) of node {node} was dropped: {error}", file=sys.stderr, flush=True)

    def _process_says(self, process: Process, kind: int, payload: bytes) -> None:
        """A record that a process of another node sends to this daemon. Its own daemon has not looked at it."""
        try:
            kinds.check_sender(kinds.Role.FAR, kind)
            if not self._holds_back(process, kind, payload):
                self._rings.handle(process, kind, payload)
        except MALFORMED as error:
            self._rings.complain(process, kind, error)

    def _daemon_says(self, node: int, to: Process, kind: int, payload: bytes) -> None:
        """A record that another daemon sends to a process of this node, or to this daemon."""
        if kind == kinds.LEASE_GRANT:
            lease, shape, slot, generation, pid = kinds.LEASE_GRANT_BODY.unpack(payload)
            if to[0] == 0:
                self._places.found(node, lease, shape, (slot, generation), pid)
                return
            self._asking.granted(node, to, shape)
        elif kind == kinds.SHAPE_REFUSED:
            return  # its report was old; the next plan asks elsewhere
        if to[0] != 0:
            self._following.head_says(to, kind, payload)
            self._port.send(*to, kind, payload)
        elif kind == kinds.LEASE_RETURN:
            holder = self._names.to_local((node, *DAEMON))
            self._feed(ev.LeaseReturned(holder, kinds.LEASE_BODY.unpack(payload)[0]))

    def ping_came(self, link: NodeLink, message: lm.Ping) -> None:
        """Answered behind all that this node has written and its processes have sent."""
        self._flush_output()
        self._rings.drain()
        link.send(lm.Pong(message.number))
