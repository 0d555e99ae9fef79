"""Which nodes have a server of the control store: the head has them started, those that came first first.

Runs in the daemon's thread, on every node. `heading` says what the head is to do besides.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.transport import NodeLink
from weft.engine.state.headship import Headship
from weft.engine.wire import link_messages as lm
from weft.net.loop import Loop
from weft.store.served_store import Store

STORES = 5
"""So many nodes have a server of the control store, where there are as many; more where there are more shards."""
FOUND_S = 0.3
"""After the first other node has come the control store is begun."""


class StoreServers:
    """The one beside this daemon; on the head also the others'."""

    def __init__(
        self,
        loop: Loop,
        store: Store | None,
        members: Membership,
        state: Headship,
        is_ready: Callable[[], bool],
        is_head: Callable[[], bool],
        found: Callable[[], None],
        report: Callable[[], None],
    ) -> None:
        """`is_ready`: whether this node is the head and has what a head must know; `found`: begin the store."""
        self._loop = loop
        self._store = store
        self._members = members
        self._state = state
        self._is_ready, self._is_head = is_ready, is_head
        self._found = found
        self._report = report
        self._addresses: dict[int, str] = {}
        """On the head: nodes with a server, and where it listens; empty while it starts."""
        self._told: set[int] = set()
        """On the head: nodes without one that know where the others are."""
        self._is_founding = False

    @property
    def is_here(self) -> bool:
        return self._store is not None and bool(self._store.address)

    def up(self) -> None:
        """The server beside this daemon listens."""
        assert self._store is not None
        self._state.can_claim = True
        self._report()
        members = self._members
        if self._is_head():
            self._addresses[members.own.number] = self._store.address
            self.enlist()
        elif members.head is not None:
            members.send(members.head, lm.StoreUp(self._store.address))

    def need(self) -> None:
        """On the head: there is one more node, or rows of the store are wanted. One that is alone begins without."""
        is_missing = self._store is not None and not self._is_founding and not self._store.address
        if is_missing and self._members.is_head:
            self._is_founding = True
            self._loop.call_later(FOUND_S, self._found)
        self.enlist()

    def enlist(self) -> None:
        """On the head: have nodes start a server, those that came first first."""
        members = self._members
        seeds = [address for address in self._addresses.values() if address]
        if self._store is None or not self._is_ready() or not self._state.has_lease or not seeds:
            return
        for number in sorted(members.links):
            if number in self._addresses:
                continue
            if len(self._addresses) < max(STORES, self._store.shards):
                if members.send(number, lm.StartStore(seeds, self._store.url, self._store.shards)):
                    self._addresses[number] = ""
            elif number not in self._told and members.send(number, lm.StoreAt(seeds, self._store.shards)):
                self._told.add(number)

    def listens(self, node: int, address: str) -> None:
        """On the head: that node has one."""
        self._addresses[node] = address

    def node_gone(self, node: int) -> None:
        self._addresses.pop(node, None)
        self._told.discard(node)

    def begin_anew(self) -> None:
        """The only one is gone."""
        self._addresses = {}

    # ---- what other nodes say ----

    def told_where(self, link: NodeLink, message: lm.StoreAt) -> None:
        if self._store is not None and not self._store.address:
            self._store.shards = message.shards
            self._store.reach(message.seeds)

    def asked_to_start(self, link: NodeLink, message: lm.StartStore) -> None:
        if self._store is not None and not self._store.address:
            self._store.url, self._store.shards = message.url, message.shards
            self._store.join(message.seeds, self.up)

    def came_up(self, link: NodeLink, message: lm.StoreUp) -> None:
        if self._is_ready():
            self._addresses[link.peer] = message.address
