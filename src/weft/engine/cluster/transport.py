"""How links between nodes are made: over sockets here, over a modelled network in the simulator.

Runs in the daemon's thread. A transport makes links and tells what becomes of them; who is at the other end, and what
follows, is the affair of `membership`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from weft.engine.wire.link import Again, Link, LinkUser, Records, Sending
from weft.engine.wire.link_messages import Fault, LinkMessage
from weft.machine.start_error import StartError
from weft.net.endpoint import Endpoint, dial, most_strangers
from weft.net.loop import Loop
from weft.net.strangers import Strangers
from weft.net.tls import TlsSession


class NodeLink(Protocol):
    """What a link is to those who use it; see `wire.link.Link`."""

    peer: int
    """The number of the node at the other end, once it is known."""

    records: Records | None
    """Where the records that it sends come from, once the node is known."""

    address: str
    """Where the node at the other end listens, once it is known."""

    is_closed: bool

    fault: Fault
    """Whose doing its end is."""

    @property
    def is_severed(self) -> bool:
        """Whether it waits for another connection."""

    def send(self, message: LinkMessage) -> None: ...
    def send_records(self) -> None: ...
    def send_bulk(self, sending: Sending) -> None: ...
    def send_parts(self) -> None: ...
    def drop_chunk(self, transfer: int) -> None: ...
    def pulse(self) -> None: ...
    def close(self, reason: str = "") -> None: ...


class LinkEvents(LinkUser[NodeLink], Protocol):
    """Who is told what becomes of links."""

    def accepted(self, link: NodeLink) -> None: ...


class Transport(Protocol):
    def open(self, events: LinkEvents) -> None:
        """Links of others are accepted from now on."""

    def connect(self, address: str) -> NodeLink:
        """A link that is on its way; OSError when it cannot be."""

    def close(self) -> None:
        """No more are accepted. The links that are there are not touched."""


class SocketTransport:
    """Links over sockets (`net.endpoint`), with the handshake of `net.auth`."""

    def __init__(
        self,
        loop: Loop,
        endpoint: Endpoint,
        token: bytes,
        fingerprints: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`fingerprints`: of the certificates that nodes at these addresses must have."""
        self._loop = loop
        self._endpoint = endpoint
        self._token = token
        self._fingerprints = fingerprints
        self._events: LinkEvents
        self._named: dict[bytes, Link] = {}
        """Links that others have made, which they may go on with over another connection."""
        self._strangers = Strangers(most_strangers())

    def open(self, events: LinkEvents) -> None:
        self._events = events
        self._endpoint.open(self._loop, self._accepted)

    def close(self) -> None:
        self._endpoint.close()

    def connect(self, address: str) -> NodeLink:
        def again(user: LinkUser[Link], is_narrow: bool) -> Link:
            return self._connect(address, user, None, is_narrow)

        return self._connect(address, self._events, again)

    def _connect(self, address: str, user: LinkUser[Link], again: Again | None, is_narrow: bool = False) -> Link:
        connection, code, tls = dial(address, is_narrow, self._fingerprints.get(address, ""))
        if code:
            connection.close()
            raise OSError(code, os.strerror(code))
        return Link(self._loop, connection, self._token, False, user, tls, again=again)

    def _accepted(self, connection: socket.socket, tls: TlsSession | None) -> None:
        link = Link(self._loop, connection, self._token, True, self._events, tls, self._named)
        self._strangers.add(link)
        self._events.accepted(link)


def listen(host: str, port: int) -> Endpoint:
    """StartError, with what to do, when the port cannot be had."""
    try:
        return Endpoint(host, port)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be listened on: {error.strerror}"
        raise StartError(f"{host}:{port} {why}. Choose another with --host and --port.") from None
