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
import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft.train.encrypted_exchange import exchange_encrypted
from weft.util import peer_sockets
from weft.util.peer_sockets import Admission, PeerEndpoint
from weft.util.shared_block import GONE, exchange_bytes

__all__ = ["Buffers", "Lost", "Rendezvous", "connect", "exchange", "listen", "own_host"]

Buffers = Sequence[Any]
Place = tuple[str, str, int]
"""(node id, host, port)"""
_RANK = struct.Struct("<I")


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
    host = own_host()
    endpoint = PeerEndpoint(host, encrypts())
    return endpoint, (weft.get_runtime_context().get_node_id(), host, endpoint.port)


def own_host() -> str:
    """This node's address."""
    node_id = weft.get_runtime_context().get_node_id()
    return str(next(node["NodeManagerAddress"] for node in weft.nodes() if node["NodeID"] == node_id))


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
    """Those of higher rank."""
    with Admission(endpoint, secret) as admission:
        while len(sockets) < len(places) - 1:
            missing = next(other for other in places if other != rank and other not in sockets)
            if time.monotonic() > deadline:
                raise Lost(missing, GONE.index("timed out"))
            try:
                link = admission.wait(max(0.0, deadline - time.monotonic()))
            except OSError as error:
                raise Lost(missing, GONE.index("timed out")) from error
            if link is None:
                continue
            caller = _said_rank(link)
            if caller not in sockets and rank < caller < len(places):
                sockets[caller] = link
            else:
                link.close()


def _said_rank(link: socket.socket) -> int:
    """0, which is nobody's who connects, of one who left before he had said it."""
    data = b""
    with contextlib.suppress(OSError):
        while len(data) < _RANK.size and (more := link.recv(_RANK.size - len(data))):
            data += more
    return int(_RANK.unpack(data)[0]) if len(data) == _RANK.size else 0


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
