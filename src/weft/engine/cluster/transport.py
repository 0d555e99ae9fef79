"""How links between nodes are made: over TCP here, over a modelled network in the simulator.

Runs in the daemon's thread. A transport makes links and tells what becomes of them; who is at the other end, and what
follows, is the affair of `membership`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from weft.engine.node.config import StartError
from weft.engine.node.loop import Loop
from weft.engine.wire.link import Link, LinkUser, Records, Sending
from weft.engine.wire.link_messages import AnyMessage
from weft.engine.wire.tls import Certificate, TlsSession, is_loopback

_ACCEPTED_AT_ONCE = 64


class NodeLink(Protocol):
    """What a link is to those who use it; see `wire.link.Link`."""

    peer: int
    """The number of the node at the other end, once it is known."""

    records: Records | None
    """Where the records that it sends come from, once the node is known."""

    address: str
    """Where the node at the other end listens, once it is known."""

    def send(self, message: AnyMessage) -> None: ...
    def send_records(self) -> None: ...
    def send_bulk(self, sending: Sending) -> None: ...
    def send_parts(self) -> None: ...
    def drop_chunk(self, transfer: int) -> None: ...
    def close(self, reason: str = "") -> None: ...


class LinkEvents(Protocol):
    """Who is told what becomes of links."""

    def accepted(self, link: NodeLink) -> None: ...
    def ready(self, link: NodeLink) -> None: ...
    def received(self, link: NodeLink, message: AnyMessage) -> None: ...
    def records_came(self, link: NodeLink, batch: memoryview) -> None: ...
    def chunk_target(self, link: NodeLink, transfer: int, offset: int, size: int) -> memoryview | None: ...
    def chunk_came(self, link: NodeLink, transfer: int, offset: int, size: int) -> None: ...
    def resumed(self, link: NodeLink) -> None: ...
    def closed(self, link: NodeLink, reason: str) -> None: ...


class Transport(Protocol):
    def open(self, events: LinkEvents) -> None:
        """Links of others are accepted from now on."""

    def connect(self, address: str) -> NodeLink:
        """A link that is on its way; OSError when it can not be."""

    def close(self) -> None:
        """No more are accepted. The links that are there are not touched."""


class TcpTransport:
    """Links over TCP, with the handshake of `wire.auth`, encrypted where they leave the machine."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        token: bytes,
        certificate: Certificate | None = None,
        fingerprints: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`fingerprints`: of the certificates that nodes at these addresses must have."""
        self._loop = loop
        self._listener = listener
        self._token = token
        self._certificate = certificate
        self._fingerprints = fingerprints
        self._events: LinkEvents
        self._named: dict[bytes, Link] = {}
        """Links that others have made, which they may go on with over another connection."""

    def open(self, events: LinkEvents) -> None:
        self._events = events
        self._loop.watch(self._listener.fileno(), self._accept)

    def close(self) -> None:
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()

    def connect(self, address: str) -> NodeLink:
        return self._connect(address, self._events, lambda user: self._connect(address, user, None))

    def _connect(self, address: str, user: LinkUser, again: Callable[[LinkUser], Link] | None) -> Link:
        host, _, port = address.rpartition(":")
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = connection.connect_ex((host, int(port)))
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            raise OSError(code, os.strerror(code))
        tls = None if is_loopback(host) else TlsSession(None, self._fingerprints.get(address, ""))
        return Link(self._loop, connection, self._token, False, user, tls, again=again)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, (host, _) = self._listener.accept()
            except OSError:  # nobody waits, or left meanwhile; or there is no descriptor now, and he waits
                return
            tls = None if self._certificate is None else TlsSession(self._certificate)
            must_encrypt = not is_loopback(host)
            link = Link(self._loop, connection, self._token, True, self._events, tls, must_encrypt, self._named)
            self._events.accepted(link)


def listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"can not be listened on: {error.strerror}"
        raise StartError(f"{host}:{port} {why}. Choose another with --host and --port.") from None
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
