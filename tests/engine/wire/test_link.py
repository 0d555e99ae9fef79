"""Two ends of a link in one loop: messages in order, bulk bytes in place, and an end with a reason for all else."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import CHUNK, CHUNK_BYTES, CHUNK_HEAD, FULL_BYTES, HEADER, MESSAGE, Link
from weft.net import connection
from weft.net.loop import Loop

if TYPE_CHECKING:
    from weft.net.tls import TlsSession


class End:
    """One end, and all that came to it."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        token: bytes,
        accepts: bool,
        tls: TlsSession | None = None,
    ) -> None:
        self.messages: list[lm.LinkMessage | bytes] = []
        self.ends: list[str] = []
        self.is_ready = False
        self.bytes = bytearray()
        self.arrived = 0
        self.link = Link(loop, connection, token, accepts, self, tls)

    def ready(self, link: Link) -> None:
        self.is_ready = True

    def received(self, link: Link, message: lm.LinkMessage) -> None:
        self.messages.append(message)

    def records_came(self, link: Link, batch: memoryview) -> None:
        self.messages.append(bytes(batch))

    def closed(self, link: Link, reason: str) -> None:
        self.ends.append(reason)

    def chunk_target(self, link: Link, transfer: int, offset: int, size: int) -> memoryview | None:
        return memoryview(self.bytes)[offset : offset + size] if transfer == 7 else None

    def chunk_came(self, link: Link, transfer: int, offset: int, size: int) -> None:
        self.arrived += size

    def resumed(self, link: Link) -> None:
        raise AssertionError("links without names are not resumed")


class Batches:
    """Records for a link: each batch once, none while it is held."""

    def __init__(self, batches: list[bytes]) -> None:
        self.batches = batches
        self.is_held = False
        self.held = 0

    def take(self) -> bytes:
        return self.batches.pop(0) if self.batches and not self.is_held else b""

    def hold(self, is_full: bool) -> None:
        self.held += is_full
        self.is_held = is_full


class Bulk:
    def __init__(self, transfer: int, data: bytes | bytearray) -> None:
        self.transfer = transfer
        self.data = memoryview(data)
        self.at = 0
        self.ready = len(data)
        """So much of it is there."""
        self.is_finished = False
        self.is_fleeting = False

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.data)

    def take(self) -> tuple[int, memoryview] | None:
        if self.at >= self.ready:
            return None
        offset, self.at = self.at, min(self.at + CHUNK_BYTES, self.ready)
        return offset, self.data[offset : self.at]

    def finish(self) -> None:
        self.is_finished = True


class Pair:
    def __init__(self, tokens: tuple[bytes, bytes] = (b"token", b"token")) -> None:
        self.loop = Loop()
        one, other = socket.socketpair()
        self.raw = one
        self.acceptor = End(self.loop, one, tokens[0], accepts=True)
        self.connector = End(self.loop, other, tokens[1], accepts=False)

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            self.loop.run_once(0.01)

    def close(self) -> None:
        self.acceptor.link.close()
        self.connector.link.close()
        self.loop.close()


@pytest.fixture
def pair():  # type: ignore[no-untyped-def]
    made = Pair()
    made.run_until(lambda: made.acceptor.is_ready and made.connector.is_ready)
    yield made
    made.close()


def test_messages_keep_their_order_whatever_their_size(pair: Pair) -> None:
    sizes = [0, 1, 7, 100_000, 3, 3_000_000, 12]
    sent = [lm.BundlesSet(os.urandom(size), True, 1) for size in sizes]
    for message in sent:
        pair.connector.link.send(message)
    pair.run_until(lambda: len(pair.acceptor.messages) == len(sent))
    assert pair.acceptor.messages == sent


@pytest.mark.parametrize("size", [0, 100_000])
def test_what_was_said_before_the_end_is_heard_although_an_answer_fails_first(pair: Pair, size: int) -> None:
    """In one round of the loop, so that nothing is read between the two."""
    sent = [lm.Ping(1), lm.BundlesSet(os.urandom(size), True, 1), lm.Ping(2)]

    def say_and_leave() -> None:
        pair.loop.unwatch(ours.fileno())
        for message in sent:
            pair.connector.link.send(message)
        pair.connector.link.close()
        pair.acceptor.link.send(lm.Ping(3))

    ours, theirs = socket.socketpair()
    with ours, theirs:
        pair.loop.watch(ours.fileno(), say_and_leave)
        theirs.send(b"now")
        pair.run_until(lambda: bool(pair.acceptor.ends))
    assert pair.acceptor.messages == sent


@pytest.mark.parametrize("size", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 123])
def test_bulk_bytes_arrive_in_place_between_messages(pair: Pair, size: int) -> None:
    data = os.urandom(size)
    pair.acceptor.bytes = bytearray(size)
    wanted, unwanted = Bulk(7, data), Bulk(8, data)
    pair.connector.link.send_bulk(unwanted)
    pair.connector.link.send_bulk(wanted)
    pair.connector.link.send(lm.Ping(1))
    pair.run_until(lambda: pair.acceptor.arrived == size and bool(pair.acceptor.messages))
    assert pair.acceptor.bytes == data
    assert pair.acceptor.messages == [lm.Ping(1)]
    assert wanted.is_finished and unwanted.is_finished


def test_an_object_that_is_still_coming_is_passed_on_as_it_comes(pair: Pair) -> None:
    data = os.urandom(3 * CHUNK_BYTES)
    pair.acceptor.bytes = bytearray(len(data))
    slow, other = Bulk(7, data), Bulk(8, data)
    slow.ready = 0
    pair.connector.link.send_bulk(slow)
    pair.connector.link.send_bulk(other)
    pair.run_until(lambda: other.is_finished)
    assert pair.acceptor.arrived == 0
    for chunks in (1, 3):
        slow.ready = chunks * CHUNK_BYTES
        pair.connector.link.send_parts()
        pair.run_until(lambda chunks=chunks: pair.acceptor.arrived == chunks * CHUNK_BYTES)
    assert pair.acceptor.bytes == data and slow.is_finished


def test_memory_that_goes_when_the_loop_goes_on_is_copied_before(pair: Pair) -> None:
    data = os.urandom(4 * CHUNK_BYTES)
    pair.acceptor.bytes = bytearray(len(data))
    passing = bytearray(data)
    bulk = Bulk(7, passing)
    bulk.is_fleeting = True
    bulk.ready = CHUNK_BYTES
    pair.connector.link.send_bulk(bulk)
    while not bulk.is_finished:
        assert pair.connector.link.connection.is_blocked, (
            "the socket took a whole chunk: this test needs one that does not"
        )
        passing[: bulk.at] = bytes(bulk.at)
        pair.run_until(lambda: pair.acceptor.arrived == bulk.at)
        bulk.ready += CHUNK_BYTES
        pair.connector.link.send_parts()
    pair.run_until(lambda: pair.acceptor.arrived == len(data))
    assert pair.acceptor.bytes == data


def test_a_chunk_that_is_dropped_half_way_is_not_written_on(pair: Pair) -> None:
    pair.acceptor.bytes = bytearray(CHUNK_BYTES)
    reader = pair.acceptor.link
    out = HEADER.pack(CHUNK_BYTES + CHUNK_HEAD.size, CHUNK) + CHUNK_HEAD.pack(7, 0) + b"x" * 1000
    pair.connector.link.connection.socket.sendall(out)
    pair.run_until(lambda: reader._chunk is not None and pair.acceptor.bytes[999] == ord("x"))
    reader.drop_chunk(8)
    reader.drop_chunk(7)
    pair.connector.link.connection.socket.setblocking(True)
    rest = memoryview(b"y" * (CHUNK_BYTES - 1000))
    while rest:
        rest = rest[pair.connector.link.connection.socket.send(rest[: 64 << 10]) :]
        pair.loop.run_once(0)
    pair.connector.link.send(lm.Ping(1))
    pair.run_until(lambda: bool(pair.acceptor.messages))
    assert pair.acceptor.bytes == b"x" * 1000 + bytes(CHUNK_BYTES - 1000) and pair.acceptor.arrived == 0


def test_records_and_messages_keep_their_order(pair: Pair) -> None:
    batches = Batches([])
    pair.connector.link.records = batches
    sent: list[lm.LinkMessage | bytes] = []
    for number in range(50):
        batches.batches.append(os.urandom(1000 * number + 1))
        sent += [batches.batches[0], lm.Ping(number)]
        pair.connector.link.send(lm.Ping(number))
    batches.batches.append(b"the last ones")
    pair.connector.link.send_records()
    pair.run_until(lambda: len(pair.acceptor.messages) == 101)
    assert pair.acceptor.messages == [*sent, b"the last ones"]


def test_no_more_records_are_taken_while_too_much_waits(pair: Pair) -> None:
    batches = Batches([bytes(1 << 20) for _ in range(64)])
    sender = pair.connector.link
    sender.records = batches
    most = 0
    while batches.batches and not batches.is_held:
        sender.send_records()
        most = max(most, sender.connection.out_bytes)
    assert batches.is_held and len(batches.batches) > 32, "everything was taken though nobody read it"
    assert most < FULL_BYTES + (2 << 20)
    while batches.batches:
        pair.run_until(lambda: not batches.is_held)
        sender.send_records()
    pair.run_until(lambda: len(pair.acceptor.messages) == 64)
    assert batches.held > 1 and not batches.is_held


def test_a_closed_link_says_so_once_and_finishes_what_was_under_way(pair: Pair) -> None:
    bulk = Bulk(8, bytes(50 * CHUNK_BYTES))
    pair.connector.link.send_bulk(bulk)
    pair.connector.link.close("enough")
    assert bulk.is_finished
    pair.run_until(lambda: bool(pair.acceptor.ends))
    assert pair.connector.ends == ["enough"]
    assert pair.acceptor.ends == ["the other node closed the connection"]
    pair.connector.link.send(lm.Ping(1))


def test_one_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.05)
    loop = Loop()
    ours, theirs = socket.socketpair()
    with ours:
        end = End(loop, theirs, b"token", accepts=True)
        while not end.ends:
            loop.run_once(0.1)
    assert end.ends == ["refused: the handshake was not finished in time"]
    loop.close()


def test_different_tokens_end_both_with_a_reason() -> None:
    pair = Pair((b"one", b"other"))
    pair.run_until(lambda: bool(pair.acceptor.ends and pair.connector.ends))
    assert pair.acceptor.ends == pair.connector.ends == ["refused: the token is wrong"]
    assert not pair.acceptor.is_ready and not pair.connector.is_ready
    pair.close()


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_after_the_handshake_end_the_link_and_nothing_else(seed: int) -> None:
    choose = random.Random(seed)
    pair = Pair()
    pair.run_until(lambda: pair.acceptor.is_ready and pair.connector.is_ready)
    body = choose.randbytes(choose.randrange(1, 300))
    kind = choose.choice([0, MESSAGE, MESSAGE, CHUNK, 200])
    pair.connector.link.connection.put(HEADER.pack(len(body), kind) + body)
    pair.connector.link.connection.flush()
    pair.loop.run_once(0.01)
    pair.connector.link.close()
    pair.run_until(lambda: bool(pair.acceptor.ends))
    assert pair.acceptor.messages == []
    pair.close()
