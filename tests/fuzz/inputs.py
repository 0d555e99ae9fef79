"""What the fuzzer, and the replay of its corpus, give to everything that reads bytes of another node.

The first byte chooses the reader, the second how the rest is cut into pieces as the network might. A reader may refuse
what comes in the one way that it has for that; anything else is a bug.
"""

from __future__ import annotations

import collections
import struct
from collections.abc import Callable

from weft import _native
from weft.engine.control.link import StoreLink
from weft.engine.node.loop import Timer
from weft.engine.state.chain_messages import StoreMessage
from weft.engine.wire import link_messages as lm
from weft.engine.wire.auth import Handshake, Refused
from weft.engine.wire.link import CHUNK_BYTES, Link

MEMORY = bytearray(2 * CHUNK_BYTES)
HERE, THERE = 1, 2
RECORD_HEAD = struct.Struct("<I20x")


def pieces(data: bytes, cut: int) -> collections.deque[bytes]:
    size = cut * cut + 1
    return collections.deque(data[at : at + size] for at in range(0, len(data), size))


class StillLoop:
    """A loop in which nothing happens."""

    def watch(self, fd: int, callback: Callable[[], None]) -> None: ...
    def unwatch(self, fd: int) -> None: ...
    def now(self) -> float:
        return 0.0

    def want_write(self, fd: int, callback: Callable[[], None] | None) -> None: ...
    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        return Timer(call)


class Pieces:
    """A socket from which the pieces come, and then the end."""

    def __init__(self, data: collections.deque[bytes]) -> None:
        self.data = data

    def setblocking(self, flag: bool) -> None: ...
    def setsockopt(self, *option: int) -> None: ...
    def close(self) -> None: ...
    def fileno(self) -> int:
        return -1

    def recv(self, size: int) -> bytes:
        return self.data.popleft() if self.data else b""

    def recv_into(self, view: memoryview) -> int:
        part = self.recv(len(view))
        if len(part) > len(view):
            self.data.appendleft(part[len(view) :])
            part = part[: len(view)]
        view[: len(part)] = part
        return len(part)

    def send(self, data: memoryview) -> int:
        return len(data)

    def sendmsg(self, parts: object) -> int:
        return sum(len(part) for part in parts)  # type: ignore[attr-defined]


class Node:
    """Who uses the link: looks at what comes, and has memory for transfer 7."""

    def __init__(self) -> None:
        self.end = ""

    def ready(self, link: Link) -> None: ...
    def received(self, link: Link, message: lm.AnyMessage) -> None:
        assert isinstance(message, lm.LinkMessage)

    def records_came(self, link: Link, batch: memoryview) -> None:
        bytes(batch)

    def chunk_target(self, link: Link, transfer: int, offset: int, size: int) -> memoryview | None:
        return memoryview(MEMORY)[:size] if transfer == 7 else None

    def chunk_came(self, link: Link, transfer: int, offset: int, size: int) -> None: ...
    def resumed(self, link: Link) -> None: ...
    def closed(self, link: Link, reason: str) -> None:
        self.end = reason


def frames(data: bytes, cut: int) -> None:
    """The frames of a peer that has the token."""
    node = Node()
    source = Pieces(pieces(data, cut))
    link = Link(StillLoop(), source, b"token", True, node)  # type: ignore[arg-type]
    link._is_trusted = True
    while not link.is_closed:
        link._read()
    assert node.end


def stranger(data: bytes, cut: int) -> None:
    """Whatever a stranger sends: it is never trusted."""
    node = Node()
    link = Link(StillLoop(), Pieces(pieces(data, cut)), b"token", True, node)  # type: ignore[arg-type]
    while not link.is_closed:
        link._read()
    assert not link._is_trusted and (node.end or not data)  # who says nothing is told nothing


def answer(data: bytes, cut: int) -> None:
    """What a stranger answers a node that connects to it."""
    handshake = Handshake(b"token", accepts=False)
    try:
        for part in pieces(data, cut):
            handshake.feed(part)
    except Refused:
        pass
    assert not handshake.is_done


class Records:
    """A node's end of the segment, with one process and one known process of another node."""

    def __init__(self) -> None:
        self.port = _native.NodePort(1 << 20)
        self.port.set_node(HERE)
        self.process = self.port.reserve_slot()
        self.far = self.port.reserve_proxy()
        self.port.name_proxy(*self.far, THERE, 5, 50)

    def __call__(self, data: bytes, cut: int) -> None:
        """A batch of records."""
        at = 0
        try:
            while at < len(data):
                at, stop = self.port.deliver(THERE, data, at)
                if stop is None:
                    break
                if isinstance(stop[0], list):  # names that nobody makes here: the record is left out
                    at += RECORD_HEAD.size + RECORD_HEAD.unpack_from(data, at)[0]
        except ValueError:
            pass
        self.port.drain()
        if self.port.statistics()["ring_blocks_used"] > 8:
            raise AssertionError("records of one peer opened many rings")


_records: Records | None = None


def records(data: bytes, cut: int) -> None:
    global _records
    if _records is None:
        _records = Records()
    _records(data, cut)


def forget_records() -> None:
    """Give the segment back."""
    global _records
    _records = None


def store_link(data: bytes, cut: int, is_trusted: bool) -> None:
    """What comes to a server of the control store."""
    ends: list[str] = []
    took: list[object] = []

    def ready(link: StoreLink) -> None:
        raise AssertionError("a stranger was trusted")

    link = StoreLink(
        StillLoop(),  # type: ignore[arg-type]
        Pieces(pieces(data, cut)),  # type: ignore[arg-type]
        b"token",
        True,
        ready,
        lambda _, messages: took.extend(messages),
        lambda _, reason, is_refused: ends.append(reason),
    )
    link._is_trusted = is_trusted
    while not link.is_closed:
        link._read()
    assert ends and all(isinstance(message, StoreMessage) for message in took)
    assert is_trusted or not took


def store_frames(data: bytes, cut: int) -> None:
    """The messages of a server or client that has the token."""
    store_link(data, cut, is_trusted=True)


def store_stranger(data: bytes, cut: int) -> None:
    """Whatever a stranger sends to the control store."""
    store_link(data, cut, is_trusted=False)


READERS = (frames, stranger, answer, records, store_frames, store_stranger)


def one_input(data: bytes) -> None:
    if len(data) >= 2:
        READERS[data[0] % len(READERS)](data[2:], data[1])
