"""Two ends of a link in one loop: messages in order, bulk bytes in place, and an end with a reason for all else."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable

import pytest

from weft.engine.node.loop import Loop
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import CHUNK, CHUNK_BYTES, HEADER, MESSAGE, Link


class End:
    """One end, and all that came to it."""

    def __init__(self, loop: Loop, connection: socket.socket, token: bytes, accepts: bool) -> None:
        self.messages: list[lm.AnyMessage] = []
        self.ends: list[str] = []
        self.is_ready = False
        self.received = bytearray()
        self.arrived = 0
        self.link = Link(
            loop, connection, token, accepts, self._ready, self._message, self._closed, self._target, self._chunk
        )

    def _ready(self, link: Link) -> None:
        self.is_ready = True

    def _message(self, link: Link, message: lm.AnyMessage) -> None:
        self.messages.append(message)

    def _closed(self, link: Link, reason: str) -> None:
        self.ends.append(reason)

    def _target(self, link: Link, transfer: int, offset: int, size: int) -> memoryview | None:
        return memoryview(self.received)[offset : offset + size] if transfer == 7 else None

    def _chunk(self, link: Link, transfer: int, offset: int, size: int) -> None:
        self.arrived += size


class Bulk:
    def __init__(self, transfer: int, data: bytes) -> None:
        self.transfer = transfer
        self.data = memoryview(data)
        self.is_finished = False

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
    sent = [lm.Record(1, 1, 2, 2, 19, [(0, 1, 1)], [], os.urandom(size)) for size in sizes]
    for message in sent:
        pair.connector.link.send(message)
    pair.run_until(lambda: len(pair.acceptor.messages) == len(sent))
    assert pair.acceptor.messages == sent


@pytest.mark.parametrize("size", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 123])
def test_bulk_bytes_arrive_in_place_between_messages(pair: Pair, size: int) -> None:
    data = os.urandom(size)
    pair.acceptor.received = bytearray(size)
    wanted, unwanted = Bulk(7, data), Bulk(8, data)
    pair.connector.link.send_bulk(unwanted)
    pair.connector.link.send_bulk(wanted)
    pair.connector.link.send(lm.Ping(1))
    pair.run_until(lambda: pair.acceptor.arrived == size and bool(pair.acceptor.messages))
    assert pair.acceptor.received == data
    assert pair.acceptor.messages == [lm.Ping(1)]
    assert wanted.is_finished and unwanted.is_finished


def test_what_is_corked_comes_once_it_is_uncorked(pair: Pair) -> None:
    pair.connector.link.cork()
    for number in range(200):
        pair.connector.link.send(lm.Ping(number))
    pair.loop.run_once(0.01)
    assert pair.acceptor.messages == []
    pair.connector.link.uncork()
    pair.run_until(lambda: len(pair.acceptor.messages) == 200)


def test_a_closed_link_says_so_once_and_finishes_what_was_under_way(pair: Pair) -> None:
    bulk = Bulk(8, bytes(50 * CHUNK_BYTES))
    pair.connector.link.send_bulk(bulk)
    pair.connector.link.close("enough")
    assert bulk.is_finished
    pair.run_until(lambda: bool(pair.acceptor.ends))
    assert pair.connector.ends == ["enough"]
    assert pair.acceptor.ends == ["the other node closed the connection"]
    pair.connector.link.send(lm.Ping(1))


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
    pair.connector.link._out.append(memoryview(HEADER.pack(len(body), kind) + body))
    pair.connector.link._flush()
    pair.loop.run_once(0.01)
    pair.connector.link.close()
    pair.run_until(lambda: bool(pair.acceptor.ends))
    assert pair.acceptor.messages == []
    pair.close()
