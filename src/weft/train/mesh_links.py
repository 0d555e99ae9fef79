"""The connections of a mesh: how members on different nodes find each other, prove who they are, and exchange bytes.

Members meet at an actor, where each says where it listens. Then each connects to those of lower rank. Both ends of a
connection prove that they have the meeting's secret, which came to them by the engine's own links. What flows after
that is not encrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft.util.shared_block import GONE, exchange_bytes

__all__ = ["Buffers", "Lost", "Rendezvous", "connect", "exchange", "listen"]

Buffers = Sequence[Any]
Place = tuple[str, str, int]
"""(node id, host, port)"""
_HELLO = struct.Struct("<I16s")
_DIGEST_BYTES = 32


class Lost(Exception):
    """A member is gone. `is_first`: this member found it by itself, nobody told it."""

    def __init__(self, rank: int, why: int, is_first: bool = True) -> None:
        super().__init__(rank, why, is_first)
        self.rank, self.why, self.is_first = rank, why, is_first


class Rendezvous:
    """The actor."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._places: dict[int, Place] = {}
        self._all_came = asyncio.Event()

    async def meet(self, rank: int, place: Place, timeout_s: float) -> dict[int, Place] | int:
        """Where all are, once all have come; a rank that did not come in time, or this rank if it is taken."""
        if rank in self._places:
            return rank
        self._places[rank] = place
        if len(self._places) == self._size:
            self._all_came.set()
        try:
            await asyncio.wait_for(self._all_came.wait(), timeout_s)
        except asyncio.TimeoutError:  # another class before Python 3.11
            return next(other for other in range(self._size) if other not in self._places)
        return self._places


def listen(size: int) -> tuple[socket.socket, Place]:
    """On this node's own address."""
    node_id = weft.get_runtime_context().get_node_id()
    host = next(node["NodeManagerAddress"] for node in weft.nodes() if node["NodeID"] == node_id)
    listener = socket.create_server((host, 0), backlog=size)
    return listener, (node_id, host, listener.getsockname()[1])


def connect(
    rank: int, places: Mapping[int, Place], listener: socket.socket, secret: bytes, timeout_s: float
) -> dict[int, socket.socket]:
    """A connection to every other member. Raises Lost for one that can not be reached in time."""
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as opened:
        sockets: dict[int, socket.socket] = {}
        for other in range(rank):
            try:
                link = socket.create_connection(places[other][1:], timeout=max(0.01, deadline - time.monotonic()))
                opened.callback(link.close)
                _introduce(link, rank, secret)
            except OSError as error:
                raise Lost(other, GONE.index("timed out")) from error
            sockets[other] = link
        while len(sockets) < len(places) - 1:
            missing = next(other for other in places if other != rank and other not in sockets)
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                link, _ = listener.accept()
            except OSError as error:
                raise Lost(missing, GONE.index("timed out")) from error
            opened.callback(link.close)
            caller = _received(link, secret, max(0.01, deadline - time.monotonic()))
            if caller is not None and caller not in sockets and rank < caller < len(places):
                sockets[caller] = link
            else:
                link.close()
        opened.pop_all()
    for link in sockets.values():
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setblocking(False)
    return sockets


def _introduce(link: socket.socket, rank: int, secret: bytes) -> None:
    nonce = secrets.token_bytes(16)
    link.sendall(_HELLO.pack(rank, nonce))
    proof, other_nonce = _read(link, _DIGEST_BYTES), _read(link, 16)
    if not hmac.compare_digest(proof, _proof(secret, b"accepts", rank, nonce)):
        raise ConnectionError("the other end does not know the meeting's secret")
    link.sendall(_proof(secret, b"connects", rank, other_nonce))


def _received(link: socket.socket, secret: bytes, timeout_s: float) -> int | None:
    """The rank of who has connected; None for a stranger."""
    link.settimeout(timeout_s)
    with contextlib.suppress(OSError):
        rank, nonce = _HELLO.unpack(_read(link, _HELLO.size))
        own_nonce = secrets.token_bytes(16)
        link.sendall(_proof(secret, b"accepts", rank, nonce) + own_nonce)
        if hmac.compare_digest(_read(link, _DIGEST_BYTES), _proof(secret, b"connects", rank, own_nonce)):
            return int(rank)
    return None


def _proof(secret: bytes, role: bytes, rank: int, nonce: bytes) -> bytes:
    return hmac.new(secret, role + rank.to_bytes(4, "little") + nonce, hashlib.sha256).digest()


def _read(link: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = link.recv(length - len(data))
        if not more:
            raise ConnectionError("the other end closed the connection")
        data += more
    return data


def exchange(
    sockets: Mapping[int, socket.socket],
    outgoing: Mapping[int, Buffers],
    incoming: Mapping[int, Buffers],
    timeout_s: float | None,
) -> None:
    """Send and receive at the same time; raises Lost for one that closed or was silent for `timeout_s`."""
    ranks = sorted({*outgoing, *incoming})
    flows = [(sockets[rank].fileno(), outgoing.get(rank, ()), incoming.get(rank, ())) for rank in ranks]
    failure = exchange_bytes(flows, -1.0 if timeout_s is None else timeout_s)
    if failure is not None:
        what, number = failure
        raise Lost(ranks[number], GONE.index("died" if what == "closed" else "timed out"))
