"""What the fuzzer, and the replay of its corpus, give to everything that reads bytes from elsewhere.

The first byte chooses the reader, the second how the rest is cut into pieces as the network might. A reader may refuse
what comes in the one way that it has for that; anything else is a bug.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from weft import _native
from weft.dashboard.requests import make_handler
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import CHUNK_BYTES, Link
from weft.engine.wire.roles import may_read
from weft.environments import archives
from weft.net.auth import Handshake, Refused
from weft.net.loop import Timer
from weft.net.tls import Certificate, TlsSession
from weft.rl import frames as rl_frames
from weft.rl.policy_file import PolicyFileError, read_policy
from weft.serve.http.bodies import ARROW, NPY, BadRequest, arguments
from weft.serve.http.exchange import Exchange
from weft.serve.http.heads import Heads
from weft.serve.http.messages import HttpAnswer, HTTPOptions
from weft.serve.http.protocol import HttpProtocol
from weft.store import journal
from weft.store.state.chain_messages import StoreMessage
from weft.store.store_link import StoreLink
from weft.train import mesh
from weft.train.mesh_links import Lost

MEMORY = bytearray(2 * CHUNK_BYTES)
HERE, THERE = 1, 2
RECORD_HEAD = struct.Struct("<I20x")
REFUSAL = _native.error_value(8, "no room")


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
    def received(self, link: Link, message: lm.LinkMessage) -> None:
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
    link.connection.is_trusted = True
    while not link.is_closed:
        link.connection._read()
    assert node.end


def reader(data: bytes, cut: int) -> None:
    """The frames of somebody with the read-only token."""
    node = Node()
    link = Link(StillLoop(), Pieces(pieces(data, cut)), b"token", True, node)  # type: ignore[arg-type]
    link.connection.is_trusted = link.connection.is_read_only = True
    node.received = lambda _, message: _only_reads(message)  # type: ignore[method-assign]
    while not link.is_closed:
        link.connection._read()


def _only_reads(message: lm.LinkMessage) -> None:
    assert may_read(message)


def stranger(data: bytes, cut: int) -> None:
    """Whatever a stranger sends: it is never trusted."""
    node = Node()
    link = Link(StillLoop(), Pieces(pieces(data, cut)), b"token", True, node)  # type: ignore[arg-type]
    while not link.is_closed:
        link.connection._read()
    assert not link.connection.is_trusted and (node.end or not data)  # who says nothing is told nothing


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
        self.far = self.port.add_proxy(THERE, 5, 50)

    def __call__(self, data: bytes, cut: int) -> None:
        """A batch of records."""
        at = 0
        try:
            while at < len(data):
                at, stop = self.port.deliver(THERE, data, at, REFUSAL if cut % 2 else b"")
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


def forget() -> None:
    """Give the segment and the loop back."""
    global _records, _loop
    _records = None
    if _loop is not None:
        _loop.close()
    _loop = None


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
        lambda _, reason, code: ends.append(reason),
    )
    link.connection.is_trusted = is_trusted
    while not link.is_closed:
        link.connection._read()
    assert ends and all(isinstance(message, StoreMessage) for message in took)
    assert is_trusted or not took


def store_frames(data: bytes, cut: int) -> None:
    """The messages of a server or client that has the token."""
    store_link(data, cut, is_trusted=True)


def store_stranger(data: bytes, cut: int) -> None:
    """Whatever a stranger sends to the control store."""
    store_link(data, cut, is_trusted=False)


CERTIFICATE = Certificate()


def encrypted_stranger(data: bytes, cut: int) -> None:
    """Whatever a stranger sends to a port: the encryption never opens by itself."""
    session = TlsSession(CERTIFICATE)
    try:
        for part in pieces(data, cut):
            assert session.feed(part) == b""
    except Refused:
        pass
    assert not session.is_open


def archive(data: bytes, cut: int) -> None:
    """A .zip of a user: unpacked inside its folder, or refused."""
    fd = os.memfd_create("archive")
    try:
        os.write(fd, data)
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm") as above:
            folder = os.path.join(above, "folder")
            with contextlib.suppress(ValueError):
                archives.unpack(f"/proc/self/fd/{fd}", folder, 1 << 20)
            assert os.listdir(above) in ([], ["folder"]), "it wrote beside its folder"
    finally:
        os.close(fd)


class Nothing:
    """Pages that answer every question with what was asked."""

    def answer(self, path: str, query: dict[str, str]) -> dict[str, str]:
        return query

    def metrics(self) -> str:
        return ""


def dashboard(data: bytes, cut: int) -> None:
    """Without the token, no request to the dashboard gets more than a refusal."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        DASHBOARD(ours, ("127.0.0.1", 1), data)
        ours.shutdown(socket.SHUT_RDWR)
        said = b""
        while part := theirs.recv(1 << 16):
            said += part
    assert b" 200 " not in said.partition(b"\r\n")[0], said


DASHBOARD = make_handler(Nothing(), os.urandom(16).hex())  # type: ignore[arg-type]
DASHBOARD.disable_nagle_algorithm = False  # its socket is no TCP


def kept(data: bytes, cut: int) -> None:
    """A file that outlived its process."""
    with contextlib.suppress(ValueError):
        journal.unpack(data)


class ServeTransport:
    """A client's connection to `weft.serve`: what it is told is kept."""

    def __init__(self) -> None:
        self.written = b""
        self.is_open = self.is_reading = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("127.0.0.1", 1)

    def write(self, data: bytes) -> None:
        assert self.is_open
        self.written += data

    def close(self) -> None:
        self.is_open = False

    abort = close

    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class ServeApp:
    """Answers every request at once with what the deployment would be called with."""

    options = HTTPOptions(max_head_bytes=2000, max_body_bytes=1000)
    most_connections = 10
    now_s = 0.0
    half_streams = 0
    date_line = b""

    def __init__(self) -> None:
        self.heads = Heads()

    def begin(self, exchange: Exchange) -> None:
        assert len(exchange.body) <= self.options.max_body_bytes
        assert exchange.head.http_version != "1.1" or any(name == b"host" for name, _ in exchange.head.headers)
        exchange.request_id = "id"
        with contextlib.suppress(BadRequest):
            arguments(exchange.head.query, exchange.head.headers, exchange.body)
        exchange.respond(HttpAnswer(200, (), b""))

    def reads_pieces(self, exchange: Exchange) -> bool:
        return False

    def has_websockets(self, path: str) -> bool:
        return False

    def exchange_ended(self, exchange: Exchange) -> None: ...
    def count_refusal(self, status: int) -> None:
        assert status in (400, 404, 408, 413, 431, 501, 505)


async def _serve(data: bytes, cut: int) -> None:
    transport = ServeTransport()
    state = SimpleNamespace(connections=set(), default_headers=[], total_requests=0)
    protocol = HttpProtocol(ServeApp(), SimpleNamespace(ws_protocol_class=None), state)  # type: ignore[arg-type]
    protocol.connection_made(transport)
    for part in pieces(data, cut):
        while transport.is_open and not transport.is_reading:
            await asyncio.sleep(0)
        if not transport.is_open:
            break
        protocol.data_received(part)
    for _ in range(100):
        protocol.sweep(1e9)
        if not transport.is_open:
            break
        await asyncio.sleep(0)
    assert not transport.is_open, "in every phase there is a time after which the connection ends"
    protocol.connection_lost(None)
    assert not state.connections


_loop: asyncio.AbstractEventLoop | None = None


def serve(data: bytes, cut: int) -> None:
    """A client of `weft.serve`: heads, bodies, and whatever else."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
    _loop.run_until_complete(_serve(data, cut))


KINDS = (b"application/json", NPY.encode(), ARROW.encode(), b"text/plain")


def serve_body(data: bytes, cut: int) -> None:
    """A body of `weft.serve`, in each of the formats that are understood."""
    query, _, body = data.partition(b"\n") if cut & 1 else (b"", b"", data)
    with contextlib.suppress(BadRequest):
        arguments(query, ((b"content-type", KINDS[cut // 2 % len(KINDS)]),), body)


def policy(data: bytes, cut: int) -> None:
    """A checkpoint's file of a policy: its header says what is in it, and nothing of it is run."""
    fd = os.memfd_create("policy")
    try:
        os.write(fd, data)
        with contextlib.suppress(PolicyFileError):
            read_policy(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def group_member(data: bytes, cut: int) -> None:
    """What a member of a group of `weft.train` says to the others."""
    head = bytearray(data[: mesh._HEAD.size].ljust(mesh._HEAD.size, b"\0"))
    with contextlib.suppress(Lost, ValueError):
        (*_, shape), length = mesh._unpacked(head)
        assert len(shape) <= mesh.MOST_DIMENSIONS and length <= mesh.SMALL_BYTES


def simulator(data: bytes, cut: int) -> None:
    """What a simulator outside says to its environment of `weft.rl`, or the other way round."""
    parts = pieces(data, cut)
    peer = SimpleNamespace(recv=lambda size: _up_to(parts, size))
    with contextlib.suppress(rl_frames.BadFrame, EOFError):
        kind, fields = rl_frames.receive(peer)  # type: ignore[arg-type]
        assert isinstance(kind, str) and isinstance(fields, dict)


def _up_to(parts: collections.deque[bytes], size: int) -> bytes:
    part = parts.popleft() if parts else b""
    if len(part) > size:
        parts.appendleft(part[size:])
    return part[:size]


READERS: tuple[Callable[[bytes, int], Any], ...] = (
    frames,
    stranger,
    answer,
    records,
    store_frames,
    store_stranger,
    encrypted_stranger,
    archive,
    dashboard,
    kept,
    reader,
    serve,
    serve_body,
    policy,
    group_member,
    simulator,
)
"""The first byte of an input is an index of this: new ones come at the end."""


def one_input(data: bytes) -> None:
    if len(data) >= 2:
        READERS[data[0] % len(READERS)](data[2:], data[1])
