"""A link outlives its connections: each message comes once, in order, whatever is cut. A dead peer ends it at once."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest import mock

import pytest

from weft.engine.cluster.transport import NodeLink, SocketTransport, listen
from weft.engine.state import hearing
from weft.engine.wire import link as link_module
from weft.engine.wire import link_messages as lm
from weft.engine.wire import reconnect
from weft.engine.wire.link import CHUNK_BYTES, Link
from weft.net import endpoint
from weft.net.loop import Loop
from weft.net.resumption import CONFIRMED_FRAMES, Resumption
from weft.testing.cutting import reset, silence


class Node:
    """One node's end of the network, and all that came to it."""

    def __init__(self, loop: Loop, token: bytes = b"token") -> None:
        port = listen("127.0.0.1", 0)
        self.address = port.address
        self.transport = SocketTransport(loop, port, token)
        self.transport.open(self)
        self.link: Link
        self.is_ready = False
        self.messages: list[lm.LinkMessage | bytes] = []
        self.ends: list[str] = []
        self.resumptions = 0
        self.bytes = bytearray(4 * CHUNK_BYTES)
        self.chunks: set[int] = set()

    def accepted(self, link: NodeLink) -> None: ...

    def ready(self, link: NodeLink) -> None:
        assert isinstance(link, Link)
        if not self.is_ready:
            self.is_ready, self.link = True, link

    def received(self, link: NodeLink, message: lm.LinkMessage) -> None:
        assert link is self.link
        self.messages.append(message)

    def records_came(self, link: NodeLink, batch: memoryview) -> None:
        self.messages.append(bytes(batch))

    def chunk_target(self, link: NodeLink, transfer: int, offset: int, size: int) -> memoryview | None:
        return memoryview(self.bytes)[offset : offset + size]

    def chunk_came(self, link: NodeLink, transfer: int, offset: int, size: int) -> None:
        self.chunks.add(offset)

    def resumed(self, link: NodeLink) -> None:
        self.resumptions += 1

    def closed(self, link: NodeLink, reason: str) -> None:
        if self.is_ready and link is self.link:
            self.ends.append(reason)

    def cut(self) -> None:
        with contextlib.suppress(OSError):  # it may be cut already
            reset(self.link.connection.socket.fileno())

    def dies(self) -> None:
        """As the kernel ends a killed process: nobody listens, and its connections are gone."""
        self.transport.close()
        self.link._resumption = None
        self.link.close()


class Pair:
    def __init__(self) -> None:
        self.loop = Loop()
        self.one, self.other = Node(self.loop), Node(self.loop)
        self.one.transport.connect(self.other.address)
        self.run_until(lambda: self.one.is_ready and self.other.is_ready)
        self.one.link.address, self.other.link.address = self.other.address, self.one.address
        self.one.link.send(lm.PeerHello(1))
        self.run_until(lambda: len(self.other.messages) == 1)
        self.other.messages.clear()

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            self.loop.run_once(0.01)

    def close(self) -> None:
        for node in (self.one, self.other):
            if not node.link.is_closed:
                node.link.close()
            with contextlib.suppress(OSError):
                node.transport.close()
        self.loop.close()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Over TCP: nobody from outside can cut a local socket."""
    monkeypatch.setenv(endpoint.VARIABLE, "0")
    made = Pair()
    yield made
    made.close()


def message(size: int = 10) -> lm.LinkMessage:
    return lm.BundlesSet(os.urandom(size), True, 1)


@pytest.mark.parametrize("cutter", ["one", "other"])
def test_what_is_sent_while_the_connection_is_cut_comes_once_and_in_order(pair: Pair, cutter: str) -> None:
    sent = [message(100_000) for _ in range(20)]
    for number, each in enumerate(sent):
        pair.one.link.send(each)
        pair.other.link.send(each)
        if number % 5 == 2:
            getattr(pair, cutter).cut()
            pair.loop.run_once(0.01)
    pair.run_until(lambda: len(pair.other.messages) == len(pair.one.messages) == len(sent))
    assert pair.one.messages == pair.other.messages == sent
    assert pair.one.resumptions == pair.other.resumptions > 0
    assert pair.one.ends == pair.other.ends == []


@pytest.mark.parametrize("seed", range(5))
def test_a_link_that_is_cut_again_and_again_loses_nothing(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    sent: list[lm.LinkMessage] = []
    for _ in range(300):
        sent.append(message(rng.choice([0, 10, 1000, 300_000])))
        pair.one.link.send(sent[-1])
        if rng.random() < 0.1:
            rng.choice([pair.one, pair.other]).cut()
        if rng.random() < 0.5:
            pair.loop.run_once(0.0)
    pair.run_until(lambda: len(pair.other.messages) == len(sent))
    assert pair.other.messages == sent


class Bulk:
    def __init__(self, data: bytes) -> None:
        self.transfer = 7
        self.data = memoryview(data)
        self.at = 0
        self.is_fleeting = False
        self.is_finished = False

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.data)

    def take(self) -> tuple[int, memoryview] | None:
        offset, self.at = self.at, min(self.at + CHUNK_BYTES, len(self.data))
        return offset, self.data[offset : self.at]

    def finish(self) -> None:
        self.is_finished = True


def test_bulk_that_was_on_its_way_is_given_up_and_can_be_sent_again(pair: Pair) -> None:
    data = os.urandom(4 * CHUNK_BYTES)
    bulk = Bulk(data)
    pair.one.link.send_bulk(bulk)
    pair.one.cut()
    pair.run_until(lambda: pair.one.resumptions == pair.other.resumptions == 1)
    assert bulk.is_finished
    pair.one.link.send_bulk(Bulk(data))
    pair.run_until(lambda: len(pair.other.chunks) == 4)
    assert pair.other.bytes == data


@pytest.mark.parametrize("dying", ["one", "other"])
def test_a_peer_that_is_dead_ends_the_link_at_once(pair: Pair, dying: str) -> None:
    dead = getattr(pair, dying)
    left = pair.other if dead is pair.one else pair.one
    began = pair.loop.now()
    dead.dies()
    pair.run_until(lambda: bool(left.ends))
    assert left.ends == ["the other node closed the connection"]
    assert pair.loop.now() - began < reconnect.RESUME_S


class SlowLoop:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.time = 0.0
        self.due: list[Callable[[], object]] = []

    def now(self) -> float:
        return self.time

    def call_later(self, delay_s: float, call: Callable[[], object]) -> None:
        self.due.append(call)


def test_a_link_that_was_cut_is_tried_again_for_as_long_as_silence_is_borne() -> None:
    """A machine with a hundred busy processes takes seconds to answer, and no node is to end for that."""
    loop, link, attempts = SlowLoop(), mock.Mock(is_severed=True), mock.Mock(side_effect=OSError)
    reconnect.NextConnection(cast(Any, loop), link, attempts).find("it was reset", False, lm.Fault.CLOSED)
    while loop.time < hearing.SILENCE_S + 2:
        loop.due.pop()()
        loop.time += reconnect.ATTEMPT_S
    assert attempts.call_count == 4 and not link.close.called
    loop.time += reconnect.RESUME_S
    loop.due.pop()()
    link.close.assert_called_once_with("it was reset", lm.Fault.CLOSED)


def test_a_link_that_was_closed_on_purpose_is_not_resumed(pair: Pair) -> None:
    pair.other.link.close("it is over")
    pair.run_until(lambda: bool(pair.one.ends))
    assert pair.one.ends == ["the other node closed the connection"]
    assert pair.one.resumptions == 0


def test_a_link_that_only_one_side_has_given_up_ends_on_the_other(pair: Pair) -> None:
    pair.one.cut()
    pair.run_until(lambda: pair.other.link.is_severed)
    pair.other.link.close("given up")
    pair.run_until(lambda: bool(pair.one.ends))
    assert pair.one.resumptions == 0


def test_what_is_confirmed_is_not_kept() -> None:
    one, other = Resumption(b"name"), Resumption(b"name")
    for number in range(10 * CONFIRMED_FRAMES):
        one.sent((b"frame",))
        if other.came(5):
            one.confirmed(other.confirm())
        assert len(one.unconfirmed()) < CONFIRMED_FRAMES, number
    with pytest.raises(ValueError, match="641 frames are said to have come, of 640 that were sent"):
        one.confirmed(641)


def beats(pair: Pair, count: int, *nodes: Node) -> None:
    """So many, of those nodes."""
    for _ in range(count):
        for node in nodes:
            node.link.pulse()
        pair.loop.run_once(0.02)
        pair.loop.run_once(0.02)


def test_a_link_over_which_nothing_is_said_keeps_its_connection(pair: Pair) -> None:
    beats(pair, 6 * link_module.SILENT_PULSES, pair.one, pair.other)
    assert pair.one.resumptions == pair.other.resumptions == 0


@pytest.mark.parametrize("deaf", ["one", "other"])
def test_a_connection_that_carries_nothing_is_replaced_and_nothing_is_lost(pair: Pair, deaf: str) -> None:
    """Whichever side notices."""
    silence(getattr(pair, deaf).link.connection.socket.fileno())
    sent = [message(100) for _ in range(3)]
    for each in sent:
        pair.one.link.send(each)
        pair.other.link.send(each)
    beats(pair, 3 * link_module.SILENT_PULSES, pair.one, pair.other)
    pair.run_until(lambda: len(pair.other.messages) == len(pair.one.messages) == len(sent))
    assert pair.one.messages == pair.other.messages == sent
    assert pair.one.resumptions == pair.other.resumptions >= 1
    assert pair.one.ends == pair.other.ends == []


def test_a_link_to_a_daemon_that_stands_still_is_not_given_up_for_that(pair: Pair) -> None:
    """How long silence is borne is not the link's affair, and only one attempt at a time is made."""
    beats(pair, 2 * link_module.SILENT_PULSES, pair.one)
    assert pair.one.ends == pair.other.ends == []
    pair.one.link.send(expected := message())
    pair.run_until(lambda: pair.other.messages == [expected])
