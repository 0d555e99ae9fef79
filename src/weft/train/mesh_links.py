"""The connections of a mesh: how members on different nodes find each other, prove who they are, and exchange bytes.

Members meet at an actor, where each says where it listens. Then each connects to those of lower rank. Both ends of a
connection prove that they have the meeting's secret, which came to them by the engine's own links, and what flows is
encrypted where it could leave the user's processes of one machine (`weft.util.peer_sockets`); WEFT_TRAIN_ENCRYPT=0
leaves that out. Strangers that connect are asked for the secret beside each other, and hold nobody up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft.train.encrypted_exchange import exchange_encrypted
from weft.util import peer_sockets
from weft.util.peer_sockets import PeerEndpoint
from weft.util.shared_block import GONE, exchange_bytes

__all__ = ["Buffers", "Lost", "Rendezvous", "connect", "exchange", "listen"]

Buffers = Sequence[Any]
Place = tuple[str, str, int]
"""(node id, host, port)"""
_Proved = tuple[int, socket.socket, socket.socket]
"""Its rank, the connection, and the second descriptor of it."""
_RANK = struct.Struct("<I")
_PROOF_S = 10.0
"""So long one who has connected may take to prove who it is."""
_MOST_UNPROVED = 512
_LOOK_S = 0.01
"""So soon one who has proved who it is on another thread is noticed."""


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


def encrypts() -> bool:
    """Whether what leaves the machine is encrypted."""
    return os.environ.get("WEFT_TRAIN_ENCRYPT", "1") != "0"


def listen() -> tuple[PeerEndpoint, Place]:
    """On this node's own address."""
    node_id = weft.get_runtime_context().get_node_id()
    host = next(node["NodeManagerAddress"] for node in weft.nodes() if node["NodeID"] == node_id)
    endpoint = PeerEndpoint(host, encrypts())
    return endpoint, (node_id, host, endpoint.port)


def connect(
    rank: int, places: Mapping[int, Place], endpoint: PeerEndpoint, secret: bytes, timeout_s: float
) -> dict[int, socket.socket]:
    """A connection to every other member. Raises Lost for one that cannot be reached in time."""
    deadline = time.monotonic() + timeout_s
    sockets: dict[int, socket.socket] = {}
    try:
        for other in range(rank):
            try:
                left_s = max(0.01, deadline - time.monotonic())
                link = peer_sockets.connect(*places[other][1:], secret, left_s, encrypts())
                sockets[other] = link
                link.sendall(_RANK.pack(rank))
            except OSError as error:
                raise Lost(other, GONE.index("timed out")) from error
        _accept_others(rank, places, endpoint, secret, deadline, sockets)
    except BaseException:
        for link in sockets.values():
            link.close()
        raise
    for link in sockets.values():
        if link.family != socket.AF_UNIX:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setblocking(False)
    return sockets


def _accept_others(
    rank: int,
    places: Mapping[int, Place],
    endpoint: PeerEndpoint,
    secret: bytes,
    deadline: float,
    sockets: dict[int, socket.socket],
) -> None:
    """Those of higher rank. Each who connects proves who it is on a thread of its own: a stranger may be silent."""
    proved: queue.SimpleQueue[_Proved] = queue.SimpleQueue()
    unproved: dict[socket.socket, None] = {}
    """Second descriptors of connections, the oldest first: to hang up on whoever reads from the first."""
    try:
        while len(sockets) < len(places) - 1:
            missing = next(other for other in places if other != rank and other not in sockets)
            if time.monotonic() > deadline:
                raise Lost(missing, GONE.index("timed out"))
            try:
                connection = endpoint.accept(min(_LOOK_S, max(0.0, deadline - time.monotonic())))
            except OSError as error:
                raise Lost(missing, GONE.index("timed out")) from error
            if connection is not None:
                if len(unproved) >= _MOST_UNPROVED:
                    hang_up(oldest := next(iter(unproved)))
                    del unproved[oldest]
                handle = connection.dup()
                unproved[handle] = None
                given = (connection, handle, endpoint, secret, proved)
                threading.Thread(target=_receive, args=given, daemon=True).start()
            while not proved.empty():
                caller, link, handle = proved.get()
                unproved.pop(handle, None)
                handle.close()
                if caller not in sockets and rank < caller < len(places):
                    sockets[caller] = link
                else:
                    link.close()
    finally:
        for handle in unproved:
            hang_up(handle)


def _receive(
    connection: socket.socket,
    handle: socket.socket,
    endpoint: PeerEndpoint,
    secret: bytes,
    proved: queue.SimpleQueue[_Proved],
) -> None:
    with contextlib.suppress(OSError):
        link = endpoint.prove(connection, secret, _PROOF_S)
        try:
            data = b""
            while len(data) < _RANK.size:
                if not (more := link.recv(_RANK.size - len(data))):
                    raise ConnectionError("it left before it had said its rank")
                data += more
        except BaseException:
            link.close()
            raise
        proved.put((_RANK.unpack(data)[0], link, handle))


def hang_up(connection: socket.socket) -> None:
    """Also on who waits in it on another thread."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def exchange(
    sockets: Mapping[int, socket.socket],
    outgoing: Mapping[int, Buffers],
    incoming: Mapping[int, Buffers],
    timeout_s: float | None,
) -> None:
    """Send and receive at the same time; raises Lost for one that closed or was silent for `timeout_s`."""
    ranks = sorted({*outgoing, *incoming})
    quiet_s = -1.0 if timeout_s is None else timeout_s
    if any(isinstance(sockets[rank], ssl.SSLSocket) for rank in ranks):
        failure = exchange_encrypted(
            [(sockets[rank], outgoing.get(rank, ()), incoming.get(rank, ())) for rank in ranks], quiet_s
        )
    else:
        flows = [(sockets[rank].fileno(), outgoing.get(rank, ()), incoming.get(rank, ())) for rank in ranks]
        failure = exchange_bytes(flows, quiet_s)
    if failure is not None:
        what, number = failure
        raise Lost(ranks[number], GONE.index("died" if what == "closed" else "timed out"))
