"""The front's protocol alone, with a transport that only remembers: whatever bytes come, in whatever pieces."""

from __future__ import annotations

import asyncio
import itertools
import re
from types import SimpleNamespace
from typing import Any

from h2.connection import H2Connection
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.serve.http.exchange import Exchange
from weft.serve.http.heads import Heads
from weft.serve.http.messages import HttpAnswer, HTTPOptions
from weft.serve.http.protocol import PREFACE, HttpProtocol

GOOD = (
    b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /b?c=d HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc",
    b"POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n",
    b"HEAD /d HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /%41%zz HTTP/1.1\r\nhost: x\r\nx-request-id: mine\r\n\r\n",
)
ODD = (
    b"\r\n",
    b"\0",
    b"GET",
    b" / HTTP/1.1\r\n",
    b"content-length: 99999999999\r\n\r\n",
    b"transfer-encoding: chunked\r\n\r\nffffffff\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"a" * 3000,
    b"expect: 100-continue\r\ncontent-length: 5\r\n\r\n",
)


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.is_open = True
        self.is_reading = True
        self.protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def write(self, data: bytes) -> None:
        assert self.is_open
        self.written += data

    def close(self) -> None:
        self.is_open = False

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class App:
    """Answers at once with what it was asked; every third time a round later."""

    def __init__(self) -> None:
        self.options = HTTPOptions(max_head_bytes=2000, max_body_bytes=1000)
        self.most_connections = self.options.max_connections
        self.now_s = 0.0
        self.half_streams = 0
        self.began = 0
        self.refusals: list[int] = []
        self.heads = Heads()
        self.date_line = b""
        self.default_headers = ()

    def new_id(self) -> str:
        return "id"

    def begin(self, exchange: Exchange) -> None:
        self.began += 1
        exchange.request_id = "id"
        assert len(exchange.body) <= 1000
        answer = HttpAnswer(200, (), exchange.path.encode() + exchange.body)
        if self.began % 3:
            exchange.respond(answer)
        else:
            asyncio.get_running_loop().call_soon(exchange.respond, answer)

    def reads_pieces(self, exchange: Exchange, is_endless: bool = False) -> bool:
        return False

    def has_websockets(self, path: str) -> bool:
        return False

    def exchange_ended(self, exchange: Exchange) -> None:
        pass

    def count_refusal(self, status: int) -> None:
        self.refusals.append(status)


async def fed(pieces: list[bytes], app: App | None = None) -> tuple[bytes, App]:
    app, transport = app or App(), Transport()
    state = SimpleNamespace(connections=set(), default_headers=[], total_requests=0)
    protocol = HttpProtocol(app, SimpleNamespace(ws_protocol_class=None), state)  # type: ignore[arg-type]
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    for piece in pieces:
        while transport.is_open and not transport.is_reading:
            await asyncio.sleep(0)
        if not transport.is_open:
            break
        transport.protocol.data_received(piece)
        assert protocol._head_bytes <= 2000 + 4000 or not transport.is_open
    for _ in range(10 * len(pieces) + 10):
        await asyncio.sleep(0)
    for now_s in (1e9, 2e9):  # a client that is told why may read that first
        transport.protocol.sweep(now_s)
    assert not transport.is_open, "in every phase there is a time after which the connection ends"
    transport.protocol.connection_lost(None)
    assert not state.connections
    return transport.written, app


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(ends)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(GOOD), max_size=6), st.lists(st.integers(0, 1000), max_size=8))
def test_requests_are_answered_in_order_however_they_are_cut(requests: list[bytes], places: list[int]) -> None:
    data = b"".join(requests)
    written, app = asyncio.run(fed(cut(data, places)))
    assert app.began == len(requests) and not app.refusals
    assert written == asyncio.run(fed([data] if data else []))[0]
    assert len(re.findall(rb"HTTP/1\.1 200 OK\r\n", written)) == len(requests)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(GOOD + ODD), st.binary(max_size=50)), max_size=12))
def test_no_bytes_bring_the_protocol_down(pieces: list[bytes]) -> None:
    written, app = asyncio.run(fed(pieces))
    heads = re.findall(rb"HTTP/1\.1 (\d+) ", written)
    assert len([one for one in heads if one != b"100"]) >= app.began - 1
    assert set(app.refusals) <= {400, 408, 413, 431}


def test_a_head_that_came_before_is_answered_from_memory_and_alike() -> None:
    for request in GOOD[:2]:
        once, _ = asyncio.run(fed([request]))
        thrice, app = asyncio.run(fed([request] * 3))
        assert app.began == 3 and thrice == 3 * once
    assert len(asyncio.run(fed([GOOD[1], GOOD[1][:-1], b"x"]))[1].heads._known) == 1


def test_what_looks_like_a_known_head_inside_another_is_not_taken_for_one() -> None:
    known = GOOD[0]
    written, app = asyncio.run(fed([known, known + b"GET /hidden HTTP/1.1\r\nx: ", known]))
    assert app.began == 3 and b"/hidden" in written and written.count(b"\r\n\r\n/a") == 2


def test_heads_that_belong_to_one_request_are_not_remembered() -> None:
    _, app = asyncio.run(fed([GOOD[4], GOOD[2], b"GET / HTTP/1.0\r\n\r\n"]))
    assert not app.heads._known


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(GOOD), max_size=6), st.lists(st.integers(0, 1000), max_size=8))
def test_what_is_remembered_changes_no_answer(requests: list[bytes], places: list[int]) -> None:
    pieces = cut(b"".join(requests), places)
    _, warm = asyncio.run(fed(list(GOOD)))
    assert len(warm.heads._known) == 2
    assert asyncio.run(fed(pieces, warm))[0] == asyncio.run(fed(pieces))[0]


def frames() -> list[bytes]:
    """What a client of HTTP/2 sends, a call each."""
    client = H2Connection()
    client.initiate_connection()
    found = [client.data_to_send()[len(PREFACE) :]]
    for number in (1, 3, 5):
        head = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", f"/{number}")]
        client.send_headers(number, head)
        found.append(client.data_to_send())
        client.send_data(number, b"body", end_stream=number != 5)
        found.append(client.data_to_send())
    client.reset_stream(5)
    client.ping(bytes(8))
    client.increment_flow_control_window(1000)
    return [*found, client.data_to_send()]


FRAMES = frames()


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(FRAMES), st.binary(max_size=50)), max_size=12), st.booleans())
def test_no_frames_bring_http_2_down(pieces: list[bytes], in_order: bool) -> None:
    given = [*FRAMES, *pieces] if in_order else pieces
    written, app = asyncio.run(fed([PREFACE, *given]))
    assert written, "settings, and why the connection ends"
    assert not in_order or app.began >= 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=8))
def test_frames_are_answered_however_they_are_cut(places: list[int]) -> None:
    _, app = asyncio.run(fed(cut(PREFACE + b"".join(FRAMES), places)))
    assert app.began == 2 and not app.refusals
