"""Which nodes there are, and a link to each: the table, joining, reports, deaths.

Runs in the daemon's thread. The head has number 0, keeps the table and numbers the others as they come; a new node
joins at the head and then links itself to those that came before it. A node is dead when its link breaks or when
nothing was heard from it for `SILENCE_S`; a node whose head is dead ends.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from weft.engine.node.loop import Loop
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import Link
from weft.engine.wire.link_messages import Member

BEAT_S = 1.0
SILENCE_S = 15.0
UNKNOWN_GUESTS = 64
"""Connections that have not said who they are; when more come, the oldest go."""
HEAD = 0


def listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(256)
    return listener


def address_of(listener: socket.socket) -> str:
    """What others connect to."""
    host, port = listener.getsockname()
    return f"{own_ip() if host == '0.0.0.0' else host}:{port}"


def own_ip() -> str:
    """Of the interface that leads to other machines; loopback's when there is none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that is nobody's
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


class Membership:
    """This node's links and its copy of the table."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        token: bytes,
        head: str,
        own: Member,
        on_joined: Callable[[], None],
        on_linked: Callable[[Member], None],
        on_message: Callable[[Link, lm.AnyMessage], None],
        on_gone: Callable[[int, str], None],
        on_lost: Callable[[str], None],
        chunk_target: Callable[[Link, int, int, int], memoryview | None],
        on_chunk: Callable[[Link, int, int, int], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._token = token
        self._head = head
        """Its address; empty when this node is the head."""
        self.own = own
        self._on_joined = on_joined
        """This node has its number, and links to all that were there before it."""
        self._on_linked = on_linked
        self._on_message = on_message
        self._on_gone = on_gone
        self._on_lost = on_lost
        """The head is gone, or does not want this node."""
        self._chunk_target = chunk_target
        self._on_chunk = on_chunk
        self.members: dict[int, Member] = {}
        self.links: dict[int, Link] = {}
        self._strangers: dict[Link, None] = {}
        self._awaited: set[int] | None = None
        """Nodes that must be linked before this one is in; None until the table came."""
        self._has_joined = False
        self._is_closed = False
        loop.watch(listener.fileno(), self._accept)
        loop.call_later(BEAT_S, self._beat)
        if self.is_head:
            self.members[HEAD] = own

    @property
    def is_head(self) -> bool:
        return not self._head

    def start(self) -> None:
        if self.is_head:
            self._has_joined = True
            self._on_joined()
        else:
            self._connect(self._head, HEAD)

    def send(self, node: int, message: lm.AnyMessage) -> bool:
        link = self.links.get(node)
        if link is None:
            return False
        link.send(message)
        return True

    def broadcast(self, message: lm.AnyMessage) -> None:
        for link in list(self.links.values()):
            link.send(message)

    def alive(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.is_alive)

    def close(self) -> None:
        self._is_closed = True
        self.broadcast(lm.Leaving())
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        for link in [*self.links.values(), *self._strangers]:
            link.close("this node ends")

    # ---- connections ----

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if len(self._strangers) >= UNKNOWN_GUESTS:  # whoever has waited longest is likely no node of ours
                next(iter(self._strangers)).close(f"refused: {UNKNOWN_GUESTS} others came after it")
            self._strangers[self._link(connection, accepts=True)] = None

    def _connect(self, address: str, number: int) -> None:
        host, _, port = address.rpartition(":")
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = connection.connect_ex((host, int(port)))
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            self._failed_to_reach(number, errno.errorcode.get(code, str(code)))
            return
        link = self._link(connection, accepts=False)
        link.peer = number
        self._strangers[link] = None

    def _link(self, connection: socket.socket, accepts: bool) -> Link:
        return Link(
            self._loop,
            connection,
            self._token,
            accepts,
            self._ready if not accepts else lambda _: None,
            self._received,
            self._closed,
            self._chunk_target,
            self._on_chunk,
        )

    def _ready(self, link: Link) -> None:
        """A link that this node asked for can be trusted."""
        if link.peer == HEAD:
            link.send(lm.JoinCluster(self.own))
        else:
            link.send(lm.PeerHello(self.own.number))
            self._know(link, link.peer)

    def _know(self, link: Link, number: int) -> None:
        self._strangers.pop(link, None)
        link.peer, link.is_peer = number, True
        link.last_heard = int(time.monotonic())
        self.links[number] = link
        if (member := self.members.get(number)) is not None:
            self._on_linked(member)
        self._check_joined(number)

    def _check_joined(self, number: int) -> None:
        if self._awaited is not None and not self._has_joined:
            self._awaited.discard(number)
            if not self._awaited:
                self._has_joined = True
                self._on_joined()

    def _received(self, link: Link, message: lm.AnyMessage) -> None:
        link.last_heard = int(time.monotonic())
        if isinstance(message, lm.Members):
            self._table_came(link, message)
        elif link.is_peer:
            if isinstance(message, lm.Leaving):
                link.close("it was asked to end")
            else:
                self._on_message(link, message)
        elif isinstance(message, lm.PeerHello):
            self._know(link, message.number)
        elif isinstance(message, lm.JoinCluster) and self.is_head:
            self._admit(link, message.member)
        elif isinstance(message, lm.Ask):
            self._on_message(link, message)
        else:
            link.close(f"a {type(message).__name__} is no first message")

    def _closed(self, link: Link, reason: str) -> None:
        self._strangers.pop(link, None)
        if self._is_closed:
            return
        if not link.is_peer:
            if reason and not reason.startswith("the other node closed"):
                _log(f"a link was not made: {reason}")
            if link.peer == HEAD and not self.is_head and not self._has_joined:
                self._failed_to_reach(HEAD, reason)
            return
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
            self._node_gone(link.peer, reason)

    def _failed_to_reach(self, number: int, reason: str) -> None:
        if number == HEAD:
            self._loop.call_later(0, lambda: self._on_lost(f"the cluster at {self._head} can not be joined: {reason}"))
        else:
            self._check_joined(number)

    # ---- the table ----

    def _admit(self, link: Link, member: Member) -> None:
        number = max(self.members) + 1
        self.members[number] = msgspec.structs.replace(member, number=number)
        for other, known in [*self.links.items(), (number, link)]:
            known.send(lm.Members(other, list(self.members.values())))
        self._know(link, number)

    def _publish(self) -> None:
        table = list(self.members.values())
        for number, link in list(self.links.items()):
            link.send(lm.Members(number, table))

    def _table_came(self, link: Link, message: lm.Members) -> None:
        if self.is_head or link.peer != HEAD:
            return link.close("only the head keeps the table")
        before = self.members
        self.members = {member.number: member for member in message.members}
        if not link.is_peer:
            self.own = self.members[message.you]
            older = [m for m in self.alive() if HEAD < m.number < message.you]
            self._awaited = {m.number for m in older} | {HEAD}
            self._know(link, HEAD)
            for member in older:
                self._connect(member.address, member.number)
            return None
        for number, member in self.members.items():
            if member.is_alive and number in self.links and number not in before:
                self._on_linked(member)
            elif not member.is_alive and number in self.links:
                self.links[number].close(member.death or "the head took it for dead")
        return None

    def _node_gone(self, number: int, reason: str) -> None:
        if number == HEAD and not self.is_head:
            self._on_lost(f"the head of the cluster is gone: {reason}")
            return
        if self.is_head and (member := self.members.get(number)) is not None:
            self.members[number] = msgspec.structs.replace(member, is_alive=False, death=reason)
            self._publish()
        self._on_gone(number, reason)

    def _beat(self) -> None:
        if self._is_closed:
            return
        now = time.monotonic()
        for link in list(self.links.values()):
            if now - link.last_heard > SILENCE_S:
                link.close(f"nothing was heard from it for {SILENCE_S:g} s")
        self._loop.call_later(BEAT_S, self._beat)


def _log(text: str) -> None:
    print(f"weft: {text}", file=sys.stderr, flush=True)
